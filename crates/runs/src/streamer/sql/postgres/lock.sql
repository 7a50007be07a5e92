-- Advisory lock of a run, released when the session ends.
SELECT pg_try_advisory_lock(hashtextextended(current_schema() || ' wsp_checkpoint ' || $1::text, 0));
