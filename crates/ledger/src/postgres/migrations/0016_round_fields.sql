-- Events of rounds up to this seq have the fields that an earlier version read from their bodies:
-- verify does not compare those.
INSERT INTO meta (name, value)
SELECT 'older_round_fields_until', last_seq FROM head WHERE last_seq > 0
ON CONFLICT (name) DO NOTHING;
