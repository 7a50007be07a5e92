-- Where the ledger stands, without waiting for whoever writes.
SELECT tag, last_seq, given_back FROM head;
