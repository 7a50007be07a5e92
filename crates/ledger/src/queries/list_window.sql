-- End of a page of $2 admissions after $1. A selective filter stops there, so that no query scans the
-- whole ledger.
SELECT seq FROM admission WHERE seq > $1 ORDER BY seq LIMIT 1 OFFSET $2;
