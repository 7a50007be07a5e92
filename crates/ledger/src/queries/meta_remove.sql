-- Removes a single value.
DELETE FROM meta WHERE name = $1;
