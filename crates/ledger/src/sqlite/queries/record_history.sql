-- Every step of the events of a record, in the order in which they were taken.
SELECT h.* FROM record_event e JOIN record_history h ON h.seq = e.seq
WHERE e.record_id = ?1 ORDER BY h.at, h.seq, h.n LIMIT ?2;
