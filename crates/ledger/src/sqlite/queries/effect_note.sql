-- Appends a line to an effect's history.
INSERT INTO effect_history (seq, n, at, attempt, what, epoch, who, why, evidence)
VALUES (?1, (SELECT coalesce(max(n), 0) + 1 FROM effect_history WHERE seq = ?1),
        ?2, ?3, ?4, ?5, ?6, ?7, ?8);
