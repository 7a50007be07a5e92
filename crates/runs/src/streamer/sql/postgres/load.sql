-- Where an output of a run goes on.
SELECT last_file, last_row_index, last_ts_utc, admitted, duplicates, quarantined
FROM wsp_checkpoint
WHERE pack_key = $1 AND output_id = $2;
