-- Number of invalid envelopes, and their bytes. The quota bounds the table, so a scan is cheap.
SELECT count(*), coalesce(sum(length(payload)), 0) FROM invalid_envelope;
