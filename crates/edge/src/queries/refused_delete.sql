-- Removes a refused row, unless another attempt has ended since it was read.
DELETE FROM event_outbox WHERE event_id = ?1 AND attempt_count = ?2 AND last_error = ?3;
