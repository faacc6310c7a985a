DELETE FROM temp.th_ending;
