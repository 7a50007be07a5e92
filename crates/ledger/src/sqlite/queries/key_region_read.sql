-- How far each region of the keys is merged.
SELECT region, merged_to FROM key_region;
