-- Records with unpublished changes, longest waiting first. Written so that the partial index is
-- used.
SELECT record_id, revision, changed_at, unoffered_at FROM record
WHERE door = $1 AND revision > offered AND state <> 'linked_round_id'
ORDER BY unoffered_at LIMIT $2;
