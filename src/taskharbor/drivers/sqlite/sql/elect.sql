-- Gives a row exactly if the bid won: the term was over, or the holder renews it. With an epoch only that very term
-- is renewed; a new one is never begun.
INSERT INTO th_leader (name, holder, epoch, until)
SELECT :name, :holder, 1, :until
 WHERE :epoch IS NULL OR EXISTS (SELECT 1 FROM th_leader WHERE name = :name)
ON CONFLICT (name) DO UPDATE
   SET epoch = CASE WHEN th_leader.until > :now THEN th_leader.epoch ELSE th_leader.epoch + 1 END,
       holder = excluded.holder, until = excluded.until
 WHERE CASE WHEN th_leader.until > :now
            THEN th_leader.holder = excluded.holder AND th_leader.epoch = coalesce(:epoch, th_leader.epoch)
            ELSE :epoch IS NULL END
RETURNING epoch;
