SELECT name FROM th_queues WHERE paused = 1;
