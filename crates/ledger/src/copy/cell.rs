//! Cells of copied tables, independent of the database, and the checksum of rows.

use admit_core::Digest;

/// Value of a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum CopyCell<'r> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'r str),
    Blob(&'r [u8]),
}

/// Type of a PostgreSQL column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Number,
    Text,
    Bytes,
    /// Exists in one of the databases only; written, not compared.
    Beside,
}

impl Kind {
    /// The kind of a type, by the name that PostgreSQL gives it.
    pub(crate) fn of(name: &str) -> Option<Self> {
        Some(match name {
            "bigint" => Self::Integer,
            "numeric" => Self::Number,
            "text" => Self::Text,
            "bytea" => Self::Bytes,
            "timestamp with time zone" => Self::Beside,
            _ => return None,
        })
    }
}

/// Parses a number in the form of both databases; integral values become integers.
pub(crate) fn number(text: &str) -> Option<CopyCell<'static>> {
    let text = text.trim();
    if let Ok(whole) = text.parse() {
        return Some(CopyCell::Integer(whole));
    }
    let real: f64 = text.parse().ok().filter(|real: &f64| real.is_finite())?;
    Some(if real == 0.0 { CopyCell::Integer(0) } else { CopyCell::Real(real) })
}

/// Order-independent checksum of rows: their number, and the sum of their digests. Detects changed, lost and
/// duplicated rows; not a defence against forged ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) rows: u64,
    lanes: [u64; 4],
}

impl Tally {
    /// Adds a row.
    pub(crate) fn add(&mut self, cells: &[CopyCell<'_>], scratch: &mut Vec<u8>) {
        scratch.clear();
        for cell in cells {
            encode(*cell, scratch);
        }
        self.rows += 1;
        let digest = Digest::of(scratch);
        for (lane, bytes) in self.lanes.iter_mut().zip(digest.as_bytes().as_chunks::<8>().0) {
            *lane = lane.wrapping_add(u64::from_be_bytes(*bytes));
        }
    }

    /// The checksum in hex, for operators.
    pub(crate) fn text(&self) -> String {
        self.lanes.iter().map(|lane| format!("{lane:016x}")).collect()
    }
}

/// Encodes a cell so that no two rows have the same encoding.
fn encode(cell: CopyCell<'_>, into: &mut Vec<u8>) {
    let (tag, bytes): (u8, &[u8]) = match cell {
        CopyCell::Null => (b'n', &[]),
        CopyCell::Integer(whole) => {
            into.push(b'i');
            into.extend(whole.to_be_bytes());
            return;
        }
        CopyCell::Real(real) => {
            into.push(b'r');
            into.extend(real.to_bits().to_be_bytes());
            return;
        }
        CopyCell::Text(text) => (b't', text.as_bytes()),
        CopyCell::Blob(bytes) => (b'b', bytes),
    };
    into.push(tag);
    into.extend((bytes.len() as u64).to_be_bytes());
    into.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(rows: &[&[CopyCell<'_>]]) -> Tally {
        let (mut tally, mut scratch) = (Tally::default(), Vec::new());
        rows.iter().for_each(|row| tally.add(row, &mut scratch));
        tally
    }

    #[test]
    fn a_tally_ignores_the_order_and_detects_every_change() {
        let (a, b) =
            ([CopyCell::Integer(1), CopyCell::Text("x")], [CopyCell::Null, CopyCell::Blob(b"x")]);
        assert_eq!(tally(&[&a, &b]), tally(&[&b, &a]));
        assert_ne!(tally(&[&a, &b]), tally(&[&a, &a]));
        assert_ne!(tally(&[&a]), tally(&[&a, &a]), "a row twice is not once");
        let split = [CopyCell::Text("ab"), CopyCell::Text("c")];
        let other = [CopyCell::Text("a"), CopyCell::Text("bc")];
        assert_ne!(tally(&[&split]), tally(&[&other]));
        assert_ne!(tally(&[&[CopyCell::Text("1")]]), tally(&[&[CopyCell::Integer(1)]]));
    }

    #[test]
    fn numbers_are_equal_in_every_notation() {
        assert_eq!(number("7"), Some(CopyCell::Integer(7)));
        assert_eq!(number(" -0.0"), Some(CopyCell::Integer(0)));
        assert_eq!(number("2.5"), Some(CopyCell::Real(2.5)));
        assert_eq!(number("inf"), None);
        assert_eq!(number("e1"), None);
    }
}
