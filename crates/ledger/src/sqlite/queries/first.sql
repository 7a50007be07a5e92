-- The admission that claimed a key.
SELECT digest, received_at, facts, principal FROM admission WHERE seq = ?1;
