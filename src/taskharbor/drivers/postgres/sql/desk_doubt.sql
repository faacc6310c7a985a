-- Notes that no lease bears out, or none that lasts so long. The look-up for each keeps to the index of ids.
UPDATE th_running r SET until = '1970-01-01Z'
WHERE r.until > '1970-01-01Z'
  -- ?some  AND r.job_id = ANY (CAST(:ids AS text[]))
  AND COALESCE((SELECT j.lease_expires_at FROM th_jobs j WHERE j.id = r.job_id AND j.lease_token = r.token) < r.until, true);
