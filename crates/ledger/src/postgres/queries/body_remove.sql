-- Bodies go.
DELETE FROM body WHERE seq = ANY ($1::bigint[]);
