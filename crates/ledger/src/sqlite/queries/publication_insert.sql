-- Inserts a publication in flight.
INSERT INTO record_publication (door, record_id, revision, topic, partition_key, dedupe_key, digest,
                                members, state, attempt, epoch, begun_at, changed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?12)
RETURNING n;
