-- Keys in bulk. From this version on, a row of key_log has the keys of consecutive seqs, 32 bytes
-- each: the first is claimed by seq, the next by seq + 1, and so on. Older rows with one key have
-- the same form.

-- Merged claims in key order: a key of 32 bytes and its seq in 6 bytes, both big-endian. A row has
-- the keys from first (the first 63 bits of a key as a number) up to the first of the next row.
CREATE TABLE key_page (
  first  INTEGER PRIMARY KEY,
  claims BLOB NOT NULL
);

-- Progress per region of keys, which is those with the same first byte: key_page has all claims up
-- to this seq, and maybe later ones.
CREATE TABLE key_region (
  region    INTEGER PRIMARY KEY,
  merged_to INTEGER NOT NULL
);

INSERT INTO key_region
WITH RECURSIVE every (region) AS (
  SELECT 0 UNION ALL SELECT region + 1 FROM every WHERE region < 255
)
SELECT region, coalesce((SELECT value FROM meta WHERE name = 'key_watermark'), 0) FROM every;

DELETE FROM meta WHERE name IN ('key_watermark', 'key_sealed_last', 'key_sealed_to');

-- All claimed keys, from key_index, key_page and the unmerged part of key_log.
CREATE VIEW claimed_key AS
WITH RECURSIVE
merged (first, n) AS (
  SELECT first, 0 FROM key_page WHERE length(claims) > 0
  UNION ALL
  SELECT p.first, n + 1 FROM merged JOIN key_page p ON p.first = merged.first
  WHERE 38 * (n + 1) < length(p.claims)
),
digits (key, place) AS MATERIALIZED (
  SELECT substr(claims, 38 * n + 1, 32), hex(substr(claims, 38 * n + 33, 6))
  FROM merged JOIN key_page ON key_page.first = merged.first
),
noted (seq, key, rest) AS (
  SELECT seq, substr(key, 1, 32), substr(key, 33) FROM key_log
  UNION ALL
  SELECT seq + 1, substr(rest, 1, 32), substr(rest, 33) FROM noted WHERE length(rest) > 0
)
SELECT key, seq FROM key_index
UNION
SELECT key, seq FROM noted
UNION
SELECT key,
       (instr('123456789ABCDEF', substr(place, 1, 1)) << 44)
     + (instr('123456789ABCDEF', substr(place, 2, 1)) << 40)
     + (instr('123456789ABCDEF', substr(place, 3, 1)) << 36)
     + (instr('123456789ABCDEF', substr(place, 4, 1)) << 32)
     + (instr('123456789ABCDEF', substr(place, 5, 1)) << 28)
     + (instr('123456789ABCDEF', substr(place, 6, 1)) << 24)
     + (instr('123456789ABCDEF', substr(place, 7, 1)) << 20)
     + (instr('123456789ABCDEF', substr(place, 8, 1)) << 16)
     + (instr('123456789ABCDEF', substr(place, 9, 1)) << 12)
     + (instr('123456789ABCDEF', substr(place, 10, 1)) << 8)
     + (instr('123456789ABCDEF', substr(place, 11, 1)) << 4)
     + instr('123456789ABCDEF', substr(place, 12, 1))
FROM digits;
