-- The duration of a lease bounds its validity: a gate that wrote alive_until with a wrong database
-- clock would otherwise count as alive until then, even weeks ahead. Gates started before this
-- migration get the default duration.
ALTER TABLE gate ADD COLUMN lease_ms BIGINT NOT NULL DEFAULT 15000;

-- Whether a gate counts as alive. The second duration tolerates a clock that was set back a little.
CREATE FUNCTION admit_lease_holds(alive_until TIMESTAMPTZ, lease_ms BIGINT) RETURNS BOOLEAN
LANGUAGE sql VOLATILE AS $$
  SELECT alive_until > clock_timestamp()
     AND alive_until <= clock_timestamp() + 2 * lease_ms * interval '1 millisecond'
$$;
