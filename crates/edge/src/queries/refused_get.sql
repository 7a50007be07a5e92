-- The same columns as in refused.sql, of one row.
SELECT event_id, payload_json, created_at, next_attempt_at, attempt_count, last_error,
       substr(last_error, 1, instr(last_error, ':') - 1)
FROM event_outbox
WHERE event_id = ?1 AND attempt_count > 0 AND instr(last_error, ':') > 0;
