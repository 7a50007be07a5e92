-- Events per source: total, recent, linked.
SELECT source, count(*) AS total,
       count(*) FILTER (WHERE link_status <> 'linked_round_id') AS unlinked,
       count(*) FILTER (WHERE received_at >= $2) AS recent,
       count(*) FILTER (WHERE received_at >= $2 AND link_status <> 'linked_round_id')
         AS recent_unlinked,
       max(received_at) AS latest_at,
       count(*) FILTER (WHERE state = 'parse_failed') AS unread,
       count(*) FILTER (WHERE drift IS NOT NULL) AS drifted
FROM record_event WHERE door = $1 GROUP BY source ORDER BY source;
