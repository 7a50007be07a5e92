-- Inserts a document, in the commit of its decision.
INSERT INTO issued (kind, run, id, identity, decision, reason, seq, of, event_id, event_type, at,
                    path, text)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13);
