//! Tables of the SQL ledgers and the ports that live in them, implemented once for both databases.

pub(crate) mod attachment;
pub(crate) mod claim;
pub(crate) mod clock;
pub(crate) mod closure;
pub(crate) mod effect;
pub(crate) mod inbox;
pub(crate) mod issued;
pub(crate) mod meta;
pub(crate) mod publication;
pub(crate) mod receipt;
pub(crate) mod record;
pub(crate) mod retention;
pub(crate) mod run;
pub(crate) mod scenario_run;
pub(crate) mod stream;
pub(crate) mod verify;
