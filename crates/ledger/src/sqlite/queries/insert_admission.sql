-- Appends in place order, so the table grows at its right edge only.
INSERT INTO admission (seq, epoch, door, principal, verdict, key, digest, received_at, attempt,
                       first, code, message, facts, happened_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14);
