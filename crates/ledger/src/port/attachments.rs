//! The port of what lies outside a ledger and belongs to it: the bus and the artifact store.
//!
//! Offsets in a ledger are offsets on one bus, and documents lie in one store. Two gates that share a
//! ledger and not its bus would give one offset to two events.

use std::fmt;

use admit_core::{Digest, Fault, Millis};

use super::BoxFuture;

/// A store that belongs to a ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Store {
    /// Where events are published.
    Bus,
    /// Where receipts and other documents lie as files.
    Artifacts,
}

impl Store {
    /// Every store.
    pub const ALL: [Self; 2] = [Self::Bus, Self::Artifacts];

    /// The name of its row among the single values of a ledger.
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

/// The identity of a store. It has 63 bits, which every ledger can hold as an integer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StoreId(u64);

impl StoreId {
    /// One from random bits.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits & i64::MAX.unsigned_abs())
    }

    /// The one of a store that is identified by its name.
    pub fn of_name(name: &str) -> Self {
        let digest = Digest::of(name.as_bytes());
        let bytes = digest.as_bytes();
        Self::from_bits(bytes.iter().take(8).fold(0, |bits, byte| (bits << 8) | u64::from(*byte)))
    }

    /// The one that [`Display`](fmt::Display) wrote.
    pub fn parse(text: &str) -> Option<Self> {
        let is_whole = text.len() == 16 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        is_whole.then(|| u64::from_str_radix(text, 16).ok().map(Self::from_bits)).flatten()
    }

    /// As it is kept in a ledger.
    pub(crate) const fn number(self) -> i64 {
        self.0.cast_signed()
    }

    /// As it was kept in a ledger.
    pub(crate) const fn from_number(number: i64) -> Self {
        Self::from_bits(number.unsigned_abs())
    }
}

impl fmt::Display for StoreId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Remembers which stores belong to the ledger.
pub trait Attachments: Send + Sync {
    /// The store that belongs to the ledger; `None` where none was recorded yet.
    fn attached(&self, store: Store) -> BoxFuture<'_, Result<Option<StoreId>, Fault>>;

    /// Records a store unless one is recorded. Returns the recorded one, which is durable.
    fn attach(&self, store: Store, id: StoreId) -> BoxFuture<'_, Result<StoreId, Fault>>;

    /// Takes a bus in a folder for this gate alone, for as long as its lease is alive. Returns the live
    /// gate that has it, be it with a copy of the folder; then nothing was taken. A gate whose lease ran
    /// out, and whose bus another gate took meanwhile, must stop.
    fn hold_bus(&self, id: StoreId) -> BoxFuture<'_, Result<Option<BusHolder>, Fault>>;
}

/// A live gate that has a bus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BusHolder {
    /// Its name in the ledger.
    pub gate: String,
    /// Until when its lease is, by the clock of the ledger. A gate that lives moves it in time.
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
