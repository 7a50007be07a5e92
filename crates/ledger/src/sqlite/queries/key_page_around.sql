-- The page of merged claims whose range contains a key, and the start of the next page.
SELECT first, claims,
       (SELECT n.first FROM key_page n WHERE n.first > p.first ORDER BY n.first LIMIT 1) AS next
FROM key_page p WHERE p.first <= ?1 ORDER BY p.first DESC LIMIT 1;
