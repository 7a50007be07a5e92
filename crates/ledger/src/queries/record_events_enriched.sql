-- The events of a record that have just got something into it, in ledger order.
SELECT seq FROM record_event WHERE record_id = $1 AND state = 'enriched' ORDER BY seq;
