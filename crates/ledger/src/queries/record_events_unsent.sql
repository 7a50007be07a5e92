-- Events merged into a record but not published yet, in ledger order.
SELECT seq FROM record_event WHERE record_id = $1 AND state IN ('enriched', 'publish_failed')
ORDER BY seq;
