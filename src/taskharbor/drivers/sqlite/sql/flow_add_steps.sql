INSERT INTO th_steps (workflow_id, number, name, part, job_id, waiting, state)
VALUES (:workflow_id, :number, :name, :part, :id, :waiting, :state);
