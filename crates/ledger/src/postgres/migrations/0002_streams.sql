-- Streams: reading in order, claims, and retention.

-- Order of each stream. Partial, so that it costs other doors nothing.
CREATE INDEX admission_stream ON admission (door, seq)
WHERE (door = 'skyra' OR (door >= 'events/' AND door < 'events0'))
  AND verdict IN ('fresh', 'revision');

-- Progress of the consumers of a stream: every entry up to head was claimed at least once.
CREATE TABLE claim_head (
  door TEXT COLLATE "C" PRIMARY KEY,
  head BIGINT NOT NULL
) WITH (fillfactor = 50);

-- Claimed entries that are not finished. An entry up to the head without a row here is finished, so
-- finished entries use no space.
CREATE TABLE claim (
  door       TEXT COLLATE "C" NOT NULL,
  seq        BIGINT NOT NULL,
  lease      BYTEA,                  -- 16 random bytes; none once it was given back
  consumer   TEXT COLLATE "C" NOT NULL,         -- who holds it, or held it last
  attempt    BIGINT NOT NULL,      -- how often it was handed out
  expires_at BIGINT NOT NULL,      -- from then on it may be claimed
  PRIMARY KEY (door, seq)
);
CREATE INDEX claim_free ON claim (door, expires_at);

-- Entries finished with another status than "done".
CREATE TABLE claim_finished (
  door        TEXT COLLATE "C" NOT NULL,
  seq         BIGINT NOT NULL,
  status      TEXT COLLATE "C" NOT NULL,
  consumer    TEXT COLLATE "C" NOT NULL,
  finished_at BIGINT NOT NULL,
  PRIMARY KEY (door, seq)
);

-- Admissions that retention skipped and must check again.
CREATE TABLE retain_later (
  due_at BIGINT NOT NULL,
  seq    BIGINT NOT NULL,
  PRIMARY KEY (due_at, seq)
);
