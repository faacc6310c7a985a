SELECT compensation FROM th_workflows WHERE id = :id
