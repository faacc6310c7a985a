UPDATE th_feed SET last_seq = LAST_INSERT_ID(last_seq + :count) WHERE id = 1
