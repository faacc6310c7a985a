INSERT INTO temp.th_ending (id, token, started_at, error, result) VALUES (:id, :token, :started_at, :error, :result);
