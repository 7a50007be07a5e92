-- Records the seq up to which a region of keys is merged.
INSERT INTO key_region (region, merged_to) VALUES (?1, ?2)
ON CONFLICT (region) DO UPDATE SET merged_to = excluded.merged_to;
