-- Inserts an effect in its initial state, in the commit of its admission.
INSERT INTO effect (seq, kind, plan, state, attempt, epoch, changed_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7);
