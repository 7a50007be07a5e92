-- Deletes claims of the plain index that were moved to pages.
DELETE FROM key_index WHERE key <= ?1;
