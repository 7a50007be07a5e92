-- Number of records waiting to be published, and the earliest time.
SELECT count(*), min(unoffered_at) FROM record
WHERE door = ?1 AND revision > offered AND state <> 'linked_round_id';
