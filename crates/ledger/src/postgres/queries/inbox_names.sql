-- Event ids of these seqs.
SELECT seq, facts FROM admission WHERE seq = ANY($1);
