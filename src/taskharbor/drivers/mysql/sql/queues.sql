SELECT name, paused FROM th_queues ORDER BY name
