-- How many are kept, and their bytes. At most as many as the quota allows, so a scan is cheap.
SELECT count(*), coalesce(sum(length(payload)), 0) FROM invalid_envelope;
