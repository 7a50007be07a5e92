-- Records a new partition.
INSERT INTO growth (parent, lo, hi, name) VALUES ($1, $2, $3, $4);
