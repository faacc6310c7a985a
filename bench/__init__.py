"""`make bench`: the drivers beside raw SQL on the same server, in one run, as ratios."""
