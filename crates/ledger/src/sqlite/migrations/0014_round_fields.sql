-- Events of rounds up to this seq have the fields that an earlier version read from their bodies:
-- verify does not compare those.
INSERT OR IGNORE INTO meta (name, value)
SELECT 'older_round_fields_until', value FROM meta WHERE name = 'last_seq' AND value > 0;
