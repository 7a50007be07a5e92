-- Who claimed this key, among those not merged yet; only for questions, never on the hot path.
SELECT seq FROM key_log WHERE key = ?1 ORDER BY seq LIMIT 1;
