-- Adds the counters of a commit to runs; inserts a run with its first event.
INSERT INTO run AS r (platform_run_id, state, opened_at, changed_at, deliveries, in_flight,
                      ambiguous, admit, duplicate, quarantine, superseded, released)
SELECT u.run, 'open', u.at, u.at, u.deliveries, u.in_flight, u.ambiguous, u.admit, u.duplicate,
       u.quarantine, u.superseded, u.released
FROM unnest($1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
            $7::bigint[], $8::bigint[], $9::bigint[], $10::bigint[])
     AS u(run, at, deliveries, in_flight, ambiguous, admit, duplicate, quarantine, superseded,
          released)
ON CONFLICT (platform_run_id) DO UPDATE SET
  changed_at = greatest(r.changed_at, excluded.changed_at),
  deliveries = r.deliveries + excluded.deliveries, in_flight = r.in_flight + excluded.in_flight,
  ambiguous = r.ambiguous + excluded.ambiguous, admit = r.admit + excluded.admit,
  duplicate = r.duplicate + excluded.duplicate, quarantine = r.quarantine + excluded.quarantine,
  superseded = r.superseded + excluded.superseded, released = r.released + excluded.released;
