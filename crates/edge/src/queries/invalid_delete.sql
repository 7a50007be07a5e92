-- Deletes an invalid envelope that was retried or discarded.
DELETE FROM invalid_envelope WHERE number = ?1;
