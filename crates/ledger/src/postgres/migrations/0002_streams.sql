-- Streams can be read in order and claimed; what is too old can go.

-- The order of each stream. Other doors are not in it, so it costs them nothing.
CREATE INDEX admission_stream ON admission (door, seq)
WHERE (door = 'skyra' OR (door >= 'events/' AND door < 'events0'))
  AND verdict IN ('fresh', 'revision');

-- How far the consumers of a stream are: everything up to head was handed out at least once.
CREATE TABLE claim_head (
  door TEXT COLLATE "C" PRIMARY KEY,
  head BIGINT NOT NULL
) WITH (fillfactor = 50);

-- What was handed out and is not finished. A place up to the head without a row here is finished,
-- so what is done leaves nothing behind.
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

-- What was finished with another word than "done".
CREATE TABLE claim_finished (
  door        TEXT COLLATE "C" NOT NULL,
  seq         BIGINT NOT NULL,
  status      TEXT COLLATE "C" NOT NULL,
  consumer    TEXT COLLATE "C" NOT NULL,
  finished_at BIGINT NOT NULL,
  PRIMARY KEY (door, seq)
);

-- What retention has passed by and must look at again.
CREATE TABLE retain_later (
  due_at BIGINT NOT NULL,
  seq    BIGINT NOT NULL,
  PRIMARY KEY (due_at, seq)
);
