//! Tables of the SQL ledgers and the ports that live in them, implemented once for both databases.

pub(crate) mod scenario_run;
