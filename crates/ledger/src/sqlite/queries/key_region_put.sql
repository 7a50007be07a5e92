-- A region of the keys is merged up to this place.
INSERT INTO key_region (region, merged_to) VALUES (?1, ?2)
ON CONFLICT (region) DO UPDATE SET merged_to = excluded.merged_to;
