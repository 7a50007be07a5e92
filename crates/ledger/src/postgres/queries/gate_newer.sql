-- One row if another process has started with the id of this gate.
SELECT 1 FROM gate WHERE owner = $1 AND epoch > $2 LIMIT 1;
