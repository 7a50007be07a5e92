-- What came day by day (UTC) since a time, of each source, and what of it is not linked.
SELECT to_char(to_timestamp(received_at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS day, source,
       count(*) AS events,
       count(*) FILTER (WHERE link_status <> 'linked_round_id') AS unlinked
FROM record_event WHERE door = $1 AND received_at >= $2
GROUP BY 1, 2 ORDER BY 1, 2;
