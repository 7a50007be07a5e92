-- Whether the schema is there; creating one needs a right that a gate need not have.
SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1;
