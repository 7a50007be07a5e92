-- Inserts a publication in flight. The head lock serialises the numbers.
INSERT INTO record_publication (n, door, record_id, revision, topic, partition_key, dedupe_key, digest,
                                members, state, attempt, epoch, begun_at, changed_at)
VALUES ((SELECT coalesce(max(n), 0) + 1 FROM record_publication),
        $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $12)
RETURNING n;
