-- The events of a record that have something in it and are not out, in ledger order.
SELECT seq FROM record_event WHERE record_id = $1 AND state IN ('enriched', 'publish_failed')
ORDER BY seq;
