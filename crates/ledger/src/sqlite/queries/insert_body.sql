-- Inserts a raw body under the seq of its admission.
INSERT INTO body (seq, bytes) VALUES (?1, ?2);
