-- Deletes pages of merged claims that were moved to the plain index.
DELETE FROM key_page;
