-- One more migration is in.
INSERT INTO admit_schema (version) VALUES ($1);
