"""Jobs of other systems, brought over with their state, their attempts and their dead letters."""
