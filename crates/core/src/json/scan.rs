//! Finds, eight bytes at a time, where a string stops being plain text.

/// One in every byte of a word.
const ONES: u64 = 0x0101_0101_0101_0101;
/// The top bit of every byte of a word.
const TOPS: u64 = ONES << 7;

/// Index of the first byte at or after `from` that a JSON string cannot hold as it is: a quote, a
/// backslash or a control character. The length of `bytes` when there is none.
pub(super) fn special(bytes: &[u8], from: usize) -> usize {
    find(bytes, from, special_tops, is_special)
}

/// As [`special`], and also stops at 0x7f and at everything that is not ASCII.
pub(super) fn special_or_not_ascii(bytes: &[u8], from: usize) -> usize {
    find(
        bytes,
        from,
        |word| special_tops(word) | equal_tops(word, 0x7f) | (word & TOPS),
        |byte| is_special(byte) || byte >= 0x7f,
    )
}

fn is_special(byte: u8) -> bool {
    byte < 0x20 || byte == b'"' || byte == b'\\'
}

#[inline]
fn find(bytes: &[u8], from: usize, tops: impl Fn(u64) -> u64, stops: impl Fn(u8) -> bool) -> usize {
    let mut at = from;
    while let Some(chunk) = bytes.get(at..).and_then(<[u8]>::first_chunk::<8>) {
        let hits = tops(u64::from_le_bytes(*chunk));
        if hits != 0 {
            return at + hits.trailing_zeros() as usize / 8;
        }
        at += 8;
    }
    while bytes.get(at).is_some_and(|byte| !stops(*byte)) {
        at += 1;
    }
    at
}

/// Sets the top bit of bytes that are special. A borrow may also set it in bytes *above* a true
/// hit, so only the lowest set bit is valid, which is the one [`find`] uses.
#[inline]
fn special_tops(word: u64) -> u64 {
    let controls = word.wrapping_sub(ONES * 0x20) & !word & TOPS;
    controls | equal_tops(word, b'"') | equal_tops(word, b'\\')
}

#[inline]
fn equal_tops(word: u64, byte: u8) -> u64 {
    let zero_where_equal = word ^ (ONES * u64::from(byte));
    zero_where_equal.wrapping_sub(ONES) & !zero_where_equal & TOPS
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_fast_scan_finds_what_a_plain_loop_finds(
            bytes in prop::collection::vec(
                prop_oneof![4 => 0x20u8..0x7f, 1 => any::<u8>(), 1 => Just(0x21), 1 => Just(0x80)],
                0..40,
            ),
            from in 0usize..20,
        ) {
            let from = from.min(bytes.len());
            let plain = |stops: fn(u8) -> bool| {
                (from..bytes.len()).find(|at| stops(bytes[*at])).unwrap_or(bytes.len())
            };
            prop_assert_eq!(special(&bytes, from), plain(is_special));
            prop_assert_eq!(
                special_or_not_ascii(&bytes, from),
                plain(|byte| is_special(byte) || byte >= 0x7f)
            );
        }
    }

    #[test]
    fn every_byte_value_is_classified_alike_at_every_position() {
        for byte in 0..=255u8 {
            for place in 0..16 {
                let mut bytes = [b'a'; 16];
                bytes[place] = byte;
                let end = if is_special(byte) { place } else { 16 };
                assert_eq!(special(&bytes, 0), end, "byte {byte:#x} at {place}");
                let end = if is_special(byte) || byte >= 0x7f { place } else { 16 };
                assert_eq!(special_or_not_ascii(&bytes, 0), end, "byte {byte:#x} at {place}");
            }
        }
    }
}
