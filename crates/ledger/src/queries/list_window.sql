-- The first admission behind the next $2 after $1: a page of a filter that lets little through ends
-- before it, so that no question walks the whole ledger.
SELECT seq FROM admission WHERE seq > $1 ORDER BY seq LIMIT 1 OFFSET $2;
