-- Inserts in seq order, so that the table only grows at its end.
INSERT INTO admission (seq, epoch, door, principal, verdict, key, digest, received_at, attempt,
                       first, code, message, facts, happened_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14);
