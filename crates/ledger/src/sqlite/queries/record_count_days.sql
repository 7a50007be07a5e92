-- Events per day (UTC) and source since a time, and how many of them are not linked.
SELECT date(received_at / 1000, 'unixepoch'), source, count(*), sum(link_status <> 'linked_round_id')
FROM record_event WHERE door = ?1 AND received_at >= ?2
GROUP BY 1, 2 ORDER BY 1, 2;
