-- Makes sure there is a row to lock. An `until` in the past is a term that anybody may follow.
INSERT IGNORE INTO th_leader (name, holder, epoch, until) VALUES (:name, '', 0, '1970-01-01 00:00:00')
