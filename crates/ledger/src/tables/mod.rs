//! Tables of the SQL ledgers and the ports that live in them, implemented once for both databases.

pub(crate) mod effect;
pub(crate) mod issued;
pub(crate) mod publication;
pub(crate) mod record;
pub(crate) mod scenario_run;
pub(crate) mod verify;
