-- Inserts events into the inbox. An existing row is foreign and is not touched.
INSERT INTO event_inbox (event_id, status, received_at, last_updated_at, payload, place)
SELECT event_id, 'received', at, at, payload, place
FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS a(event_id, at, payload, place)
ON CONFLICT (event_id) DO NOTHING;
