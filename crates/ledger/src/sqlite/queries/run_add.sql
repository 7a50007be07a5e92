-- Adds the counters of a commit to a run; inserts the run with its first event.
INSERT INTO run (platform_run_id, state, opened_at, changed_at, deliveries, in_flight, ambiguous,
                 admit, duplicate, quarantine, superseded, released)
VALUES (?1, 'open', ?2, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)
ON CONFLICT (platform_run_id) DO UPDATE SET
  changed_at = max(changed_at, ?2), deliveries = deliveries + ?3, in_flight = in_flight + ?4,
  ambiguous = ambiguous + ?5, admit = admit + ?6, duplicate = duplicate + ?7,
  quarantine = quarantine + ?8, superseded = superseded + ?9, released = released + ?10;
