-- Whether some runs accept events.
SELECT platform_run_id, state FROM run WHERE platform_run_id = ANY($1::text[]);
