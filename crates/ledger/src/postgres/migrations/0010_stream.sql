-- Progress of the streamer, with the names of the reference system. No gate writes here. One row
-- per output of a run; the history is append-only.
CREATE TABLE wsp_checkpoint (
  pack_key       TEXT COLLATE "C" NOT NULL,
  output_id      TEXT COLLATE "C" NOT NULL,
  last_file      TEXT COLLATE "C" NOT NULL,
  last_row_index BIGINT NOT NULL,
  last_ts_utc    TEXT COLLATE "C" NOT NULL,
  admitted       BIGINT NOT NULL,
  duplicates     BIGINT NOT NULL,
  quarantined    BIGINT NOT NULL,
  updated_at_utc TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (pack_key, output_id)
);

CREATE TABLE wsp_checkpoint_history (
  id             BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  pack_key       TEXT COLLATE "C" NOT NULL,
  output_id      TEXT COLLATE "C" NOT NULL,
  last_file      TEXT COLLATE "C" NOT NULL,
  last_row_index BIGINT NOT NULL,
  last_ts_utc    TEXT COLLATE "C" NOT NULL,
  reason         TEXT COLLATE "C" NOT NULL,
  saved_at_utc   TEXT COLLATE "C" NOT NULL
);

-- Read positions of the partitions of the control bus.
CREATE TABLE wsp_ready_position (
  topic       TEXT COLLATE "C" NOT NULL,
  partition   BIGINT NOT NULL,
  next_offset TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (topic, partition)
);
