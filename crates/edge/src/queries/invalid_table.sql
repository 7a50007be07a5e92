-- Whether the file has the table; a file of an older agent gets it when the agent starts.
SELECT 1 FROM sqlite_schema WHERE type = 'table' AND name = 'invalid_envelope';
