//! Whoever can answer questions: the ledger of a gate, and a reader beside it.

/// Implements a port of questions for both. A blanket implementation would be the second one beside
/// that of the embedded ledger.
macro_rules! answering {
    ($port:ident $answers:tt) => {
        impl $port for $crate::postgres::PostgresLedger $answers
        impl $port for $crate::postgres::PostgresReader $answers
    };
}
pub(super) use answering;
