-- Events of a record whose fields were just merged into it, in ledger order.
SELECT seq FROM record_event WHERE record_id = $1 AND state = 'enriched' ORDER BY seq;
