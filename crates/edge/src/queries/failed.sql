-- Records a failed attempt.
UPDATE event_outbox
SET attempt_count = attempt_count + 1, last_error = ?3, next_attempt_at = ?4
WHERE rowid = ?1 AND event_id = ?2;
