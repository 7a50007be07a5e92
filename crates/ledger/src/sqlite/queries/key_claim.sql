-- Claims a key in the plain index. Zero rows changed means it exists: the same claim again after a
-- crash, or a broken invariant; the caller distinguishes them.
INSERT INTO key_index (key, seq) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING;
