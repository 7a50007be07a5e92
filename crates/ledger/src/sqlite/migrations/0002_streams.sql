-- Streams: reading in order, claims, and retention.

-- Event time by the producer's clock; a key is only forgotten if it is known.
ALTER TABLE admission ADD COLUMN happened_at INTEGER;

-- Order of each stream. Partial, so that it costs other doors nothing.
CREATE INDEX admission_stream ON admission (door)
WHERE (door = 'skyra' OR (door >= 'events/' AND door < 'events0'))
  AND verdict IN ('fresh', 'revision');

-- Progress of the consumers of a stream: every entry up to head was claimed at least once.
CREATE TABLE claim_head (
  door TEXT PRIMARY KEY,
  head INTEGER NOT NULL
) WITHOUT ROWID;

-- Claimed entries that are not finished. An entry up to the head without a row here is finished, so
-- finished entries use no space.
CREATE TABLE claim (
  door       TEXT NOT NULL,
  seq        INTEGER NOT NULL,
  lease      BLOB,                  -- 16 random bytes; none once it was given back
  consumer   TEXT NOT NULL,         -- who holds it, or held it last
  attempt    INTEGER NOT NULL,      -- how often it was handed out
  expires_at INTEGER NOT NULL,      -- from then on it may be claimed
  PRIMARY KEY (door, seq)
) WITHOUT ROWID;
CREATE INDEX claim_free ON claim (door, expires_at);

-- Entries finished with another status than "done".
CREATE TABLE claim_finished (
  door        TEXT NOT NULL,
  seq         INTEGER NOT NULL,
  status      TEXT NOT NULL,
  consumer    TEXT NOT NULL,
  finished_at INTEGER NOT NULL,
  PRIMARY KEY (door, seq)
) WITHOUT ROWID;

-- Admissions that retention skipped and must check again.
CREATE TABLE retain_later (
  due_at INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  PRIMARY KEY (due_at, seq)
) WITHOUT ROWID;

-- Every fresh admission claimed one key.
INSERT INTO meta (name, value) SELECT 'keys', count(*) FROM admission WHERE verdict = 'fresh';
