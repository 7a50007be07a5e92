-- Merged claims that the plain index has taken over.
DELETE FROM key_page;
