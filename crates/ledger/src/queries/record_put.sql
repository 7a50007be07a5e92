-- Upserts a record. Its revision is incremented only if its content changed; a record that is
-- created again after it was retired continues after its last published revision.
INSERT INTO record (record_id, door, grp, number, date, time, event_time, state, revision, opened_at,
                    changed_at, digest, fingerprints, unoffered_at)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8,
        1 + coalesce((SELECT max(revision) FROM record_publication WHERE record_id = $1), 0),
        $9, $9, $10, $11, $9)
ON CONFLICT (record_id) DO UPDATE
SET grp = excluded.grp, number = excluded.number, date = excluded.date, time = excluded.time,
    event_time = excluded.event_time, state = excluded.state, revision = record.revision + 1,
    changed_at = excluded.changed_at, digest = excluded.digest,
    fingerprints = excluded.fingerprints,
    unoffered_at = CASE WHEN record.revision > record.offered THEN record.unoffered_at
                        ELSE excluded.unoffered_at END
WHERE record.digest <> excluded.digest;
