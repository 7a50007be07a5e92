-- Forgets the acknowledged ends of the previous bus, because another bus was attached.
DELETE FROM meta WHERE substr(name, 1, length($1)) = $1;
