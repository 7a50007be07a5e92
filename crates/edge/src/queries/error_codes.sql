-- Number of rows per error code of their last attempt: the text before the colon.
SELECT substr(last_error, 1, instr(last_error, ':') - 1), count(*) FROM event_outbox
WHERE attempt_count > 0 AND instr(last_error, ':') > 0
GROUP BY 1;
