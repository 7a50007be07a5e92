-- Appends a line to a publication's history.
INSERT INTO record_publication_history (n, line, at, attempt, what, epoch, who, why, evidence)
VALUES ($1, (SELECT coalesce(max(line), 0) + 1 FROM record_publication_history WHERE n = $1),
        $2, $3, $4, $5, $6, $7, $8);
