-- Raises a single value that never decreases.
INSERT INTO meta (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = greatest(meta.value, excluded.value);
