-- Takes one refusal of ?3 bytes from the quota; changes nothing if it is exhausted.
INSERT INTO refusal_quota (door, principal, rows, bytes) VALUES (?1, ?2, 1, ?3)
ON CONFLICT (door, principal) DO UPDATE SET rows = rows + 1, bytes = bytes + excluded.bytes
WHERE rows < ?4 AND bytes + excluded.bytes <= ?5;
