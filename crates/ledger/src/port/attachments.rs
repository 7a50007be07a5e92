//! Port of attachments: the bus and the artifact store that belong to a ledger.
//!
//! Offsets in a ledger refer to one bus, and documents lie in one store. Two gates that shared a ledger but
//! not its bus would assign one offset to two events.

use std::fmt;

use admit_core::{Digest, Fault, Millis};

use super::BoxFuture;

/// External store of a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Bus that events are published to.
    Bus,
    /// Store of receipt files and other documents.
    Artifacts,
}

impl Store {
    /// Every store.
    pub const ALL: [Self; 2] = [Self::Bus, Self::Artifacts];

    /// Name of its row in the table `meta`.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Bus => "bus_id",
            Self::Artifacts => "artifacts_id",
        }
    }
}

impl fmt::Display for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Bus => "bus",
            Self::Artifacts => "artifact store",
        })
    }
}

/// Identity of a store: 63 bits, which every ledger can hold as an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreId(u64);

impl StoreId {
    /// An id from random bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & i64::MAX.unsigned_abs())
    }

    /// Id of a store that is identified by its name.
    pub fn of_name(name: &str) -> Self {
        let digest = Digest::of(name.as_bytes());
        let bytes = digest.as_bytes();
        Self::from_bits(bytes.iter().take(8).fold(0, |bits, byte| (bits << 8) | u64::from(*byte)))
    }

    /// Parses the output of [`Display`](fmt::Display).
    pub fn parse(text: &str) -> Option<Self> {
        let is_whole = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_whole.then(|| u64::from_str_radix(text, 16).ok().map(Self::from_bits)).flatten()
    }

    /// The stored integer.
    pub(crate) const fn number(self) -> i64 {
        self.0.cast_signed()
    }

    /// The id of a stored integer.
    pub(crate) const fn from_number(number: i64) -> Self {
        Self::from_bits(number.unsigned_abs())
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Binds external stores to the ledger.
pub trait Attachments: Send + Sync {
    /// Returns the recorded store; `None` if none was recorded yet.
    fn attached(&self, store: Store) -> BoxFuture<'_, Result<Option<StoreId>, Fault>>;

    /// Records a store unless one is recorded. Returns the recorded one, which is durable.
    fn attach(&self, store: Store, id: StoreId) -> BoxFuture<'_, Result<StoreId, Fault>>;

    /// Takes exclusive use of a bus in a folder for as long as this gate's lease is alive. Returns the live
    /// gate that holds the bus or a copy of its folder; then nothing was taken. A gate whose lease ran out,
    /// and whose bus was taken by another gate meanwhile, must stop.
    fn hold_bus(&self, id: StoreId) -> BoxFuture<'_, Result<Option<BusHolder>, Fault>>;
}

/// Live gate that holds a bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusHolder {
    /// Gate id.
    pub gate: String,
    /// Expiry of its lease, by the clock of the ledger. A live gate renews it in time.
    pub lease_until: Millis,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_survives_text_and_number() {
        for bits in [0, 1, 0x0123_4567_89ab_cdef, u64::MAX] {
            let id = StoreId::from_bits(bits);
            assert_eq!(StoreId::parse(&id.to_string()), Some(id));
            assert_eq!(StoreId::from_number(id.number()), id);
        }
        assert_ne!(StoreId::of_name("nats:a"), StoreId::of_name("nats:b"));
        for text in ["", "12", "g123456789abcdef", "0123456789abcdef0"] {
            assert_eq!(StoreId::parse(text), None, "{text}");
        }
    }
}
