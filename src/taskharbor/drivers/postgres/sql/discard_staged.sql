DELETE FROM th_staged WHERE run = :run;
