-- One single value, unset.
DELETE FROM meta WHERE name = $1;
