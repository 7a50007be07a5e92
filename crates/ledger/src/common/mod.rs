//! What every ledger does alike, whatever database it keeps its rows in.

pub(crate) mod claims;
pub(crate) mod records;
