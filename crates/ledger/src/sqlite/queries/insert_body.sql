-- The raw body, under the place of the admission it belongs to.
INSERT INTO body (seq, bytes) VALUES (?1, ?2);
