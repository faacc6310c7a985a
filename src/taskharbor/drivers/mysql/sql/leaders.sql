SELECT name, holder, epoch, until FROM th_leader WHERE epoch > 0 ORDER BY name
