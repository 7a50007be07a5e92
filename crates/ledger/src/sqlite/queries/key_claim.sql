-- Claims a key in the plain index. Zero rows changed means it is there already: the same claim again
-- after a crash, or a broken promise; the caller tells them apart.
INSERT INTO key_index (key, seq) VALUES (?1, ?2) ON CONFLICT (key) DO NOTHING;
