-- One row by name decides: it changes hands only when its term has ended, and then the epoch rises.
INSERT INTO th_leader AS held (name, holder, epoch, until) VALUES (:name, :holder, 1, :until)
ON CONFLICT (name) DO UPDATE
SET holder = EXCLUDED.holder, until = EXCLUDED.until,
    epoch = CASE WHEN held.until > :now THEN held.epoch ELSE held.epoch + 1 END
WHERE held.until <= :now OR held.holder = :holder
RETURNING epoch;
