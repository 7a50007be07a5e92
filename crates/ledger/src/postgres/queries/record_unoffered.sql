-- Records that say what no revision on the bus says, the longest waiting first. Written so that the
-- partial index serves it.
SELECT record_id, revision, changed_at, unoffered_at FROM record
WHERE door = $1 AND revision > offered AND state <> 'linked_round_id'
ORDER BY unoffered_at LIMIT $2;
