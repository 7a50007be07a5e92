-- Deletes bodies.
DELETE FROM body WHERE seq = ANY ($1::bigint[]);
