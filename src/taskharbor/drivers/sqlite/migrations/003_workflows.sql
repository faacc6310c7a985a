-- Workflows: jobs that wait for other jobs.

CREATE TABLE th_workflows (
  id           TEXT    NOT NULL PRIMARY KEY,
  name         TEXT    NOT NULL,
  tenant_id    TEXT    NOT NULL,
  policy       TEXT    NOT NULL,
  state        TEXT    NOT NULL,
  total        INTEGER NOT NULL,
  done         INTEGER NOT NULL,
  failed       INTEGER NOT NULL,
  created_at   INTEGER NOT NULL,
  ended_at     INTEGER NULL,
  compensation TEXT    NULL -- the job to enqueue when it has failed, until that is done
) WITHOUT ROWID;
CREATE INDEX th_workflows_state ON th_workflows (state);
CREATE INDEX th_workflows_ended ON th_workflows (ended_at) WHERE ended_at IS NOT NULL;

-- Each step is a job. `waiting` counts the steps before it that have not ended.
CREATE TABLE th_steps (
  workflow_id TEXT    NOT NULL,
  number      INTEGER NOT NULL,
  name        TEXT    NOT NULL,
  part        TEXT    NOT NULL,
  job_id      TEXT    NOT NULL,
  waiting     INTEGER NOT NULL,
  state       TEXT    NOT NULL,
  PRIMARY KEY (workflow_id, number)
) WITHOUT ROWID;
CREATE UNIQUE INDEX th_steps_job ON th_steps (job_id);
-- What may have to be let go, stopped or mended; what waits or is done is in none of them.
CREATE INDEX th_steps_held ON th_steps (workflow_id, number) WHERE state = 'held';
CREATE INDEX th_steps_open ON th_steps (workflow_id, number) WHERE state = 'open';
CREATE INDEX th_steps_failed ON th_steps (workflow_id, number) WHERE state = 'failed';

CREATE TABLE th_edges (
  workflow_id TEXT    NOT NULL,
  cause       INTEGER NOT NULL,
  effect      INTEGER NOT NULL,
  PRIMARY KEY (workflow_id, cause, effect)
) WITHOUT ROWID;
