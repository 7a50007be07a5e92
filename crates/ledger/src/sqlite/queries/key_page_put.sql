-- Writes a page of merged claims.
INSERT INTO key_page (first, claims) VALUES (?1, ?2)
ON CONFLICT (first) DO UPDATE SET claims = excluded.claims;
