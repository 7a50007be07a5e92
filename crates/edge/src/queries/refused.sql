-- Rows whose last attempt got a reply with an error code, the oldest first.
SELECT event_id, payload_json, created_at, next_attempt_at, attempt_count, last_error,
       substr(last_error, 1, instr(last_error, ':') - 1)
FROM event_outbox
WHERE attempt_count > 0 AND instr(last_error, ':') > 0
ORDER BY rowid;
