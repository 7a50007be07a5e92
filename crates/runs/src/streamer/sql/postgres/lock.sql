-- Held by the session until it ends, however that comes about.
SELECT pg_try_advisory_lock(hashtextextended(current_schema() || ' wsp_checkpoint ' || $1::text, 0));
