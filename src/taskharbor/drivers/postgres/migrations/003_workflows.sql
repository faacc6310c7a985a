-- Workflows: jobs that wait for other jobs.

CREATE TABLE th_workflows (
  id           TEXT COLLATE "C" PRIMARY KEY,
  name         TEXT COLLATE "C" NOT NULL,
  tenant_id    TEXT COLLATE "C" NOT NULL,
  policy       TEXT COLLATE "C" NOT NULL,
  state        TEXT COLLATE "C" NOT NULL,
  total        INT NOT NULL,
  done         INT NOT NULL,
  failed       INT NOT NULL,
  created_at   TIMESTAMPTZ NOT NULL,
  ended_at     TIMESTAMPTZ NULL,
  compensation TEXT NULL -- the job to enqueue when it has failed, until that is done
);
CREATE INDEX th_workflows_state ON th_workflows (state);
CREATE INDEX th_workflows_ended ON th_workflows (ended_at) WHERE ended_at IS NOT NULL;

-- Each step is a job. `waiting` counts the steps before it that have not ended.
CREATE TABLE th_steps (
  workflow_id TEXT COLLATE "C" NOT NULL,
  number      INT NOT NULL,
  name        TEXT COLLATE "C" NOT NULL,
  part        TEXT COLLATE "C" NOT NULL,
  job_id      TEXT COLLATE "C" NOT NULL,
  waiting     INT NOT NULL,
  state       TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (workflow_id, number)
)
WITH (autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);
CREATE UNIQUE INDEX th_steps_job ON th_steps (job_id);
-- What may have to be let go, stopped or mended; what waits or is done is in none of them.
CREATE INDEX th_steps_held ON th_steps (workflow_id, number) WHERE state = 'held';
CREATE INDEX th_steps_open ON th_steps (workflow_id, number) WHERE state = 'open';
CREATE INDEX th_steps_failed ON th_steps (workflow_id, number) WHERE state = 'failed';

CREATE TABLE th_edges (
  workflow_id TEXT COLLATE "C" NOT NULL,
  cause       INT NOT NULL,
  effect      INT NOT NULL,
  PRIMARY KEY (workflow_id, cause, effect)
);
