//! Event hashes: key (identity) and digest (content).

use std::fmt;

use sha2::{Digest as _, Sha256};

/// Identity of an event: SHA-256 over the door and the contract's own key.
///
/// Parts are length-prefixed, so `("ab", "c")` and `("a", "bc")` are different keys, and keys of
/// two doors never collide.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key([u8; 32]);

/// Hash of the content that must not differ under one key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

/// Separates keys of this formula from any other use of SHA-256 and from later formulas.
const KEY_DOMAIN: &[u8] = b"admit.key.1";

impl Key {
    /// Derives the key of an event at `door` from the parts `own` of the contract's key, in order.
    pub fn derive(door: &str, own: &[&[u8]]) -> Self {
        let mut hash = Sha256::new();
        hash.update(KEY_DOMAIN);
        for part in std::iter::once(door.as_bytes()).chain(own.iter().copied()) {
            hash.update((part.len() as u64).to_be_bytes());
            hash.update(part);
        }
        Self(hash.finalize().into())
    }
}

impl Digest {
    /// Hashes `bytes`, which are in the contract's canonical form.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }
}

/// Returns SHA-256 of `bytes` as 64 lower-case hex digits, the form most contracts put on the wire.
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&<[u8; 32]>::from(Sha256::digest(bytes)))
}

/// Encodes bytes as lower-case hex digits.
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        text.push(char::from(DIGITS[usize::from(byte >> 4)]));
        text.push(char::from(DIGITS[usize::from(byte & 15)]));
    }
    text
}

/// Decodes 64 hex digits; `None` for any other text.
pub fn unhex32(text: &str) -> Option<[u8; 32]> {
    let digits = text.as_bytes();
    if digits.len() != 64 {
        return None;
    }
    let mut bytes = [0; 32];
    for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
        let high = char::from(pair[0]).to_digit(16)?;
        let low = char::from(pair[1]).to_digit(16)?;
        *byte = u8::try_from(high * 16 + low).ok()?;
    }
    Some(bytes)
}

macro_rules! hash_bytes {
    ($name:ident) => {
        impl $name {
            /// Wraps a stored or received hash.
            pub const fn from_bytes(bytes: [u8; 32]) -> Self {
                Self(bytes)
            }

            /// Raw bytes.
            pub const fn as_bytes(&self) -> &[u8; 32] {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&hex(&self.0))
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), hex(&self.0[..6]))
            }
        }
    };
}

hash_bytes!(Key);
hash_bytes!(Digest);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moving_a_byte_between_parts_makes_another_key() {
        assert_ne!(Key::derive("d", &[b"ab", b"c"]), Key::derive("d", &[b"a", b"bc"]));
        assert_ne!(Key::derive("da", &[b"b"]), Key::derive("d", &[b"ab"]));
    }

    #[test]
    fn the_key_formula_never_changes() {
        let key = Key::derive("pixel-control", &[b"own"]);
        assert_eq!(
            key.to_string(),
            "dee9ba1de6c6559d20a70d12d219a363eba359bc4359d51f13c127042fe03a76"
        );
    }

    #[test]
    fn hex_round_trips() {
        let digest = Digest::of(b"abc");
        assert_eq!(
            digest.to_string(),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
        assert_eq!(unhex32(&digest.to_string()), Some(*digest.as_bytes()));
        assert_eq!(unhex32("zz"), None);
    }
}
