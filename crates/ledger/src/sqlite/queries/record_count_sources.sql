-- Events per source: total, recent, linked.
SELECT source, count(*), sum(link_status <> 'linked_round_id'), sum(received_at >= ?2),
       sum(received_at >= ?2 AND link_status <> 'linked_round_id'), max(received_at),
       sum(state = 'parse_failed'), sum(drift IS NOT NULL)
FROM record_event WHERE door = ?1 GROUP BY source ORDER BY source;
