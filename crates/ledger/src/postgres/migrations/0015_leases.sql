-- A lease is believed for no longer than it can last: a gate that wrote alive_until while the clock of
-- the database was wrong would otherwise count as alive until that time, be it weeks ahead. Gates of
-- before this migration keep the default, which is the length of their lease unless it was configured.
ALTER TABLE gate ADD COLUMN lease_ms BIGINT NOT NULL DEFAULT 15000;

-- Whether a gate must be taken for alive. The second length allows a clock that was set back a little.
CREATE FUNCTION admit_lease_holds(alive_until TIMESTAMPTZ, lease_ms BIGINT) RETURNS BOOLEAN
LANGUAGE sql VOLATILE AS $$
  SELECT alive_until > clock_timestamp()
     AND alive_until <= clock_timestamp() + 2 * lease_ms * interval '1 millisecond'
$$;
