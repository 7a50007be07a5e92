-- How many records wait to be published, and since when.
SELECT count(*) AS waiting, min(unoffered_at) AS since FROM record
WHERE door = $1 AND revision > offered AND state <> 'linked_round_id';
