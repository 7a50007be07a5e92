-- One row when another process has started under the name of this gate.
SELECT 1 FROM gate WHERE owner = $1 AND epoch > $2 LIMIT 1;
