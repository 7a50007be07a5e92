-- The newest document that a gate has issued.
UPDATE gate SET issued_to = $2 WHERE epoch = $1;
