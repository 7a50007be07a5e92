-- Every file up to ?2 is on stable storage. One gate writes them all, whatever its epochs.
INSERT INTO meta (name, value) VALUES ('artifacts_synced', ?2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
