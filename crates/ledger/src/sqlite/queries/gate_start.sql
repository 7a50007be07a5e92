-- Starts a gate with the next epoch.
INSERT INTO gate (owner, started_at) VALUES (?1, ?2) RETURNING epoch;
