-- One load at a time publishes jobs that have no keys: what another one has published is known once it has committed.
SELECT pg_advisory_xact_lock(1413829453, hashtext('th_loads'));
