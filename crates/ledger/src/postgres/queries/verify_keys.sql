-- Claims after the key $1, with the admission they name.
SELECT k.key, k.seq, a.key AS admission_key, a.verdict
FROM key_index k LEFT JOIN admission a ON a.seq = k.seq
WHERE k.key > $1 ORDER BY k.key LIMIT $2;
