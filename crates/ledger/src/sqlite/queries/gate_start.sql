-- A gate starts: the next epoch is its own.
INSERT INTO gate (owner, started_at) VALUES (?1, ?2) RETURNING epoch;
