"""`make bench`: ours beside other queues and beside plain SQL on the same server, in one run, as ratios."""
