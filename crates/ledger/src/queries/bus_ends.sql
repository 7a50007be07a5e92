-- Number of acknowledged messages per bus topic, proven by settled effects.
SELECT substr(name, length($1) + 1) AS topic, value AS messages
FROM meta WHERE substr(name, 1, length($1)) = $1;
