//! What stands in a cell, whichever database keeps it, and what the rows of a table come to.

use admit_core::Digest;

/// What stands in a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Cell<'r> {
    Null,
    Integer(i64),
    Real(f64),
    Text(&'r str),
    Blob(&'r [u8]),
}

/// What a column of PostgreSQL takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Integer,
    Number,
    Text,
    Bytes,
    /// Something that only one of the databases has; it is written, not compared.
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

/// A number as both databases tell it: whole where it is whole.
pub(crate) fn number(text: &str) -> Option<Cell<'static>> {
    let text = text.trim();
    if let Ok(whole) = text.parse() {
        return Some(Cell::Integer(whole));
    }
    let real: f64 = text.parse().ok().filter(|real: &f64| real.is_finite())?;
    Some(if real == 0.0 { Cell::Integer(0) } else { Cell::Real(real) })
}

/// How many rows there are and what they come to, in whatever order they are read: the digests of
/// the rows, added up. It tells a change, a loss or a doubling from none; it is no proof against
/// somebody who makes up rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    pub(crate) rows: u64,
    lanes: [u64; 4],
}

impl Tally {
    /// Counts a row.
    pub(crate) fn add(&mut self, cells: &[Cell<'_>], scratch: &mut Vec<u8>) {
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

    /// What the rows come to, for people.
    pub(crate) fn text(&self) -> String {
        self.lanes.iter().map(|lane| format!("{lane:016x}")).collect()
    }
}

/// Writes a cell so that no two rows have one spelling.
fn encode(cell: Cell<'_>, into: &mut Vec<u8>) {
    let (tag, bytes): (u8, &[u8]) = match cell {
        Cell::Null => (b'n', &[]),
        Cell::Integer(whole) => {
            into.push(b'i');
            into.extend(whole.to_be_bytes());
            return;
        }
        Cell::Real(real) => {
            into.push(b'r');
            into.extend(real.to_bits().to_be_bytes());
            return;
        }
        Cell::Text(text) => (b't', text.as_bytes()),
        Cell::Blob(bytes) => (b'b', bytes),
    };
    into.push(tag);
    into.extend((bytes.len() as u64).to_be_bytes());
    into.extend(bytes);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(rows: &[&[Cell<'_>]]) -> Tally {
        let (mut tally, mut scratch) = (Tally::default(), Vec::new());
        rows.iter().for_each(|row| tally.add(row, &mut scratch));
        tally
    }

    #[test]
    fn a_tally_does_not_depend_on_the_order_and_tells_every_change() {
        let (a, b) = ([Cell::Integer(1), Cell::Text("x")], [Cell::Null, Cell::Blob(b"x")]);
        assert_eq!(tally(&[&a, &b]), tally(&[&b, &a]));
        assert_ne!(tally(&[&a, &b]), tally(&[&a, &a]));
        assert_ne!(tally(&[&a]), tally(&[&a, &a]), "a row twice is not once");
        let split = [Cell::Text("ab"), Cell::Text("c")];
        let other = [Cell::Text("a"), Cell::Text("bc")];
        assert_ne!(tally(&[&split]), tally(&[&other]));
        assert_ne!(tally(&[&[Cell::Text("1")]]), tally(&[&[Cell::Integer(1)]]));
    }

    #[test]
    fn numbers_are_the_same_however_they_are_spelt() {
        assert_eq!(number("7"), Some(Cell::Integer(7)));
        assert_eq!(number(" -0.0"), Some(Cell::Integer(0)));
        assert_eq!(number("2.5"), Some(Cell::Real(2.5)));
        assert_eq!(number("inf"), None);
        assert_eq!(number("e1"), None);
    }
}
