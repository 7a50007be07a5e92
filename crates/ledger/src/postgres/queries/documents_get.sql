-- Current projected documents.
SELECT w.at, d.text
FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS w(projection, entity, at)
JOIN document d ON d.projection = w.projection AND d.entity = w.entity;
