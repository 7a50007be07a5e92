-- Whether the schema exists. Creating one needs a privilege that a gate may lack.
SELECT 1 FROM pg_catalog.pg_namespace WHERE nspname = $1;
