-- Increments a single value.
INSERT INTO meta (name, value) VALUES ($1, $2)
ON CONFLICT (name) DO UPDATE SET value = meta.value + excluded.value;
