-- Append-only history of checkpoints.
INSERT INTO wsp_checkpoint_history (
    pack_key, output_id, last_file, last_row_index, last_ts_utc, reason, saved_at_utc
)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);
