-- Another bus becomes the one of the ledger; how far the old one was acknowledged says nothing about it.
DELETE FROM meta WHERE substr(name, 1, length($1)) = $1;
