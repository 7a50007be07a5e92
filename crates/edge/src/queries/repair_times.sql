-- Makes rows due whose due time is beyond the maximum delay: they were written under another clock
-- (a machine without a battery-backed clock starts in the past).
UPDATE event_outbox SET next_attempt_at = ?1 WHERE next_attempt_at > ?2;
