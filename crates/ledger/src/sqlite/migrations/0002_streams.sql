-- Streams can be read in order and claimed; what is too old can go.

-- When the event happened by its producer's clock; only with it may a key be forgotten.
ALTER TABLE admission ADD COLUMN happened_at INTEGER;

-- The order of each stream. Other doors are not in it, so it costs them nothing.
CREATE INDEX admission_stream ON admission (door)
WHERE (door = 'skyra' OR (door >= 'events/' AND door < 'events0'))
  AND verdict IN ('fresh', 'revision');

-- How far the consumers of a stream are: everything up to head was handed out at least once.
CREATE TABLE claim_head (
  door TEXT PRIMARY KEY,
  head INTEGER NOT NULL
) WITHOUT ROWID;

-- What was handed out and is not finished. A place up to the head without a row here is finished,
-- so what is done leaves nothing behind.
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

-- What was finished with another word than "done".
CREATE TABLE claim_finished (
  door        TEXT NOT NULL,
  seq         INTEGER NOT NULL,
  status      TEXT NOT NULL,
  consumer    TEXT NOT NULL,
  finished_at INTEGER NOT NULL,
  PRIMARY KEY (door, seq)
) WITHOUT ROWID;

-- What retention has passed by and must look at again.
CREATE TABLE retain_later (
  due_at INTEGER NOT NULL,
  seq    INTEGER NOT NULL,
  PRIMARY KEY (due_at, seq)
) WITHOUT ROWID;

-- Every fresh admission claimed one key.
INSERT INTO meta (name, value) SELECT 'keys', count(*) FROM admission WHERE verdict = 'fresh';
