-- Updates the state of stored documents: void, released, or open again.
UPDATE issued i
SET superseded_by = u.superseded_by, released_how = u.released_how, released_by = u.released_by,
    released_why = u.released_why, released_at = u.released_at
FROM unnest($1::bigint[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::bigint[])
     AS u(n, superseded_by, released_how, released_by, released_why, released_at)
WHERE i.n = u.n;
