SELECT name, paused, fair, weights FROM th_queues ORDER BY name;
