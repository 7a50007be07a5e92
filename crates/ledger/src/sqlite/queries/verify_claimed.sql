-- The admission that a claim names.
SELECT key, verdict FROM admission WHERE seq = ?1;
