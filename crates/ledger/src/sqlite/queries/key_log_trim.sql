-- Forgets noted claims that are merged, a slice at a time: everything before a place.
DELETE FROM key_log WHERE seq < ?1;
