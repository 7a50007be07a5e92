-- The seq up to which each region of keys is merged.
SELECT region, merged_to FROM key_region;
