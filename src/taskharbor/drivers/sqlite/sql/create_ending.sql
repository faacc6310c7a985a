-- The settlements that end jobs, as a table of this connection, so that a batch of them is one statement.
CREATE TEMPORARY TABLE th_ending (id TEXT, token TEXT, started_at INTEGER, error TEXT, result BLOB);
