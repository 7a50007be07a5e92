-- Files up to ?2 that an earlier process may have left unwritten are on stable storage.
INSERT INTO meta (name, value) VALUES ('artifacts_synced', ?2)
ON CONFLICT (name) DO UPDATE SET value = excluded.value;
