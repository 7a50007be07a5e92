-- Claims of the plain index that are in pages now.
DELETE FROM key_index WHERE key <= ?1;
