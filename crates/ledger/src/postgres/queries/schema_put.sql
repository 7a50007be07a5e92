-- Records an applied migration.
INSERT INTO admit_schema (version) VALUES ($1);
