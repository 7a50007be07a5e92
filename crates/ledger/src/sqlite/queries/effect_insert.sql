-- The intended effect, in the commit of its admission.
INSERT INTO effect (seq, kind, plan, state, attempt, changed_at) VALUES (?1, ?2, ?3, ?4, ?5, ?6);
