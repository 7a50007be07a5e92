-- Deletes a body.
DELETE FROM body WHERE seq = ?1;
