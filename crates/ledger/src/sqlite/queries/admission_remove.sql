-- An admission goes with its facts.
DELETE FROM admission WHERE seq = ?1 RETURNING door, seq;
