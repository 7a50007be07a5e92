-- No wait is longer than the cap. A row that is due later than that was written under another
-- clock (a machine without a battery clock starts in the past), and is due now.
UPDATE event_outbox SET next_attempt_at = ?1 WHERE next_attempt_at > ?2;
