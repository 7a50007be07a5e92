-- Pages of merged claims after the one that begins at ?1.
SELECT first, claims FROM key_page WHERE first > ?1 ORDER BY first LIMIT ?2;
