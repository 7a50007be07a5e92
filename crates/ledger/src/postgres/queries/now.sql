-- The clock of the database, in milliseconds since the Unix epoch.
SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
