-- Number of rows, since when, and how many have failed before.
SELECT count(*), min(created_at), coalesce(sum(attempt_count > 0), 0), coalesce(max(attempt_count), 0),
       min(next_attempt_at)
FROM event_outbox;
