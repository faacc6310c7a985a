SELECT name, holder, epoch, until FROM th_leader ORDER BY name;
