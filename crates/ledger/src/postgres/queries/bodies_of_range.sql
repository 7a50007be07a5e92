-- Number of bodies in a range of seqs.
SELECT count(*) AS count FROM body WHERE seq >= $1 AND seq < $2;
