-- Events of rounds up to this seq have the fields that an earlier version read from their bodies:
-- verify does not compare those.
INSERT INTO meta (name, value)
SELECT 'older_round_fields_until', coalesce(max(value), 0) FROM meta WHERE name = 'last_seq';
