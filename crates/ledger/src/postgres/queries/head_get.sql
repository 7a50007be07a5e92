-- Reads the counters of the ledger, without waiting for the writer.
SELECT tag, last_seq, given_back FROM head;
