-- Workflows: jobs that wait for other jobs. Every statement may run again.

CREATE TABLE IF NOT EXISTS th_workflows (
  id           VARCHAR(64) NOT NULL PRIMARY KEY,
  name         VARCHAR(255) NOT NULL,
  tenant_id    VARCHAR(255) NOT NULL,
  policy       VARCHAR(16) NOT NULL,
  state        VARCHAR(16) NOT NULL,
  total        INT NOT NULL,
  done         INT NOT NULL,
  failed       INT NOT NULL,
  created_at   DATETIME(6) NOT NULL,
  ended_at     DATETIME(6) NULL,
  compensation LONGTEXT NULL, -- the job to enqueue when it has failed, until that is done
  INDEX th_workflows_state (state),
  INDEX th_workflows_ended (ended_at)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

-- Each step is a job. `waiting` counts the steps before it that have not ended.
CREATE TABLE IF NOT EXISTS th_steps (
  workflow_id VARCHAR(64) NOT NULL,
  number      INT NOT NULL,
  name        VARCHAR(255) NOT NULL,
  part        VARCHAR(255) NOT NULL,
  job_id      VARCHAR(64) NOT NULL,
  waiting     INT NOT NULL,
  state       VARCHAR(16) NOT NULL,
  PRIMARY KEY (workflow_id, number),
  UNIQUE INDEX th_steps_job (job_id),
  INDEX th_steps_moving (state, workflow_id, number)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;

CREATE TABLE IF NOT EXISTS th_edges (
  workflow_id VARCHAR(64) NOT NULL,
  cause       INT NOT NULL,
  effect      INT NOT NULL,
  PRIMARY KEY (workflow_id, cause, effect)
) ENGINE = InnoDB DEFAULT CHARACTER SET utf8mb4 /*M! COLLATE utf8mb4_nopad_bin */ /*!80017 COLLATE utf8mb4_0900_bin */;
