-- Saves a checkpoint unless it is older. Files are streamed in name order, so a row value
-- comparison shows which checkpoint is later.
INSERT INTO wsp_checkpoint (
    pack_key, output_id, last_file, last_row_index, last_ts_utc,
    admitted, duplicates, quarantined, updated_at_utc
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
ON CONFLICT (pack_key, output_id) DO UPDATE SET
    last_file = excluded.last_file,
    last_row_index = excluded.last_row_index,
    last_ts_utc = excluded.last_ts_utc,
    admitted = excluded.admitted,
    duplicates = excluded.duplicates,
    quarantined = excluded.quarantined,
    updated_at_utc = excluded.updated_at_utc
WHERE (excluded.last_file, excluded.last_row_index) >= (last_file, last_row_index);
