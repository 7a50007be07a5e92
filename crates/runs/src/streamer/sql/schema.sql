-- Table names as in the reference system. One checkpoint per output of a run; the history is
-- append-only.
CREATE TABLE IF NOT EXISTS wsp_checkpoint (
    pack_key TEXT NOT NULL,
    output_id TEXT NOT NULL,
    last_file TEXT NOT NULL,
    last_row_index INTEGER NOT NULL,
    last_ts_utc TEXT NOT NULL,
    admitted INTEGER NOT NULL,
    duplicates INTEGER NOT NULL,
    quarantined INTEGER NOT NULL,
    updated_at_utc TEXT NOT NULL,
    PRIMARY KEY (pack_key, output_id)
) WITHOUT ROWID, STRICT;

CREATE TABLE IF NOT EXISTS wsp_checkpoint_history (
    id INTEGER PRIMARY KEY,
    pack_key TEXT NOT NULL,
    output_id TEXT NOT NULL,
    last_file TEXT NOT NULL,
    last_row_index INTEGER NOT NULL,
    last_ts_utc TEXT NOT NULL,
    reason TEXT NOT NULL,
    saved_at_utc TEXT NOT NULL
) STRICT;

-- Read position per partition of the control bus.
CREATE TABLE IF NOT EXISTS wsp_ready_position (
    topic TEXT NOT NULL,
    partition INTEGER NOT NULL,
    next_offset TEXT NOT NULL,
    PRIMARY KEY (topic, partition)
) WITHOUT ROWID, STRICT;

PRAGMA user_version = 1;
