-- The checkpoint of an output of a run.
SELECT last_file, last_row_index, last_ts_utc, admitted, duplicates, quarantined
FROM wsp_checkpoint
WHERE pack_key = $1 AND output_id = $2;
