-- How many messages of each bus topic settled effects prove to be acknowledged.
SELECT substr(name, length($1) + 1) AS topic, value AS messages
FROM meta WHERE substr(name, 1, length($1)) = $1;
