-- Claims a key. Zero rows changed means it is there already: the same claim merged twice after a
-- crash, or a broken promise; the caller tells them apart.
INSERT INTO key_index (key, seq) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING;
