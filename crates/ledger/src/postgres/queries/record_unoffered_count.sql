-- How many records wait to be published, and since when.
SELECT count(*), min(unoffered_at) FROM record
WHERE door = $1 AND revision > offered AND state <> 'linked_round_id';
