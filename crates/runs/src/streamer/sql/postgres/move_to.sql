-- Saves the read position; all earlier messages are settled.
INSERT INTO wsp_ready_position (topic, partition, next_offset)
VALUES ($1, $2, $3)
ON CONFLICT (topic, partition) DO UPDATE SET next_offset = excluded.next_offset;
