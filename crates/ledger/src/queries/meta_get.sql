-- Reads a single value.
SELECT value FROM meta WHERE name = $1;
