-- One row to send.
SELECT event_id, payload_json, attempt_count FROM event_outbox WHERE rowid = ?1;
