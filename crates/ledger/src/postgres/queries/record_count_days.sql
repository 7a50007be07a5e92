-- Events per day (UTC) and source since a time, and how many of them are not linked.
SELECT to_char(to_timestamp(received_at / 1000) AT TIME ZONE 'UTC', 'YYYY-MM-DD'), source, count(*),
       count(*) FILTER (WHERE link_status <> 'linked_round_id')
FROM record_event WHERE door = $1 AND received_at >= $2
GROUP BY 1, 2 ORDER BY 1, 2;
