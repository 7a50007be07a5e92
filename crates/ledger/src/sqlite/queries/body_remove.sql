-- A body goes.
DELETE FROM body WHERE seq = ?1;
