//! Logged claims: the rows of `key_log`.
//!
//! A row holds the keys of a run of seqs, 32 bytes each: the first is claimed by the row's own seq, the next
//! by the seq after it, and so on. A run never extends beyond the commit it was written in, and regions are
//! merged up to the end of a commit, so whole rows are trimmed together. Rows of one key are equivalent; an
//! earlier version wrote them, and so does a lone event.

use admit_core::{Key, Seq};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension, Row};

use super::damaged;
use super::pages::KEY_BYTES;
use crate::sqlite::queries;

/// Maximum keys in a row: eight such rows fill a page, and the remainder of a batch wastes little of
/// one.
const RUN_MAX: usize = 31;

/// Appends claims, sorted by seq.
pub(super) fn append(conn: &Connection, claims: &[(Key, Seq)]) -> rusqlite::Result<()> {
    let mut append = conn.prepare_cached(queries::KEY_LOG_APPEND)?;
    let mut keys = Vec::with_capacity(claims.len().min(RUN_MAX) * KEY_BYTES);
    for run in claims.chunk_by(|(_, one), (_, next)| next.0 == one.0 + 1) {
        for run in run.chunks(RUN_MAX) {
            keys.clear();
            run.iter().for_each(|(key, _)| keys.extend_from_slice(key.as_bytes()));
            append.execute((run[0].1.0, &keys))?;
        }
    }
    Ok(())
}

/// Trims at least `wanted` claims of seqs up to `floor`, in whole rows; returns `true` if none is left.
pub(super) fn trim(conn: &Connection, floor: Seq, wanted: usize) -> rusqlite::Result<bool> {
    let mut lengths = conn.prepare_cached(queries::KEY_LOG_LENGTHS)?;
    let mut rows = lengths.query([floor.0])?;
    let mut claims = 0;
    let next = loop {
        let Some(row) = rows.next()? else { break None };
        if claims >= wanted {
            break Some(row.get(0)?);
        }
        claims += row.get::<_, usize>(1)? / KEY_BYTES;
    };
    drop(rows);
    conn.prepare_cached(queries::KEY_LOG_TRIM)?.execute([next.unwrap_or(floor.0 + 1)])?;
    Ok(next.is_none())
}

/// Parses the claims of a row `seq, key`.
pub(super) fn claims(row: &Row<'_>) -> rusqlite::Result<impl Iterator<Item = (Key, Seq)>> {
    let (first, keys) = (row.get::<_, u64>(0)?, whole_keys(row.get_ref(1)?)?);
    Ok(keys.iter().zip(first..).map(|(key, seq)| (Key::from_bytes(*key), Seq(seq))))
}

/// Returns the seq that claimed `key`, among logged claims. Scans all of them.
pub(super) fn find(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
    let mut read = conn.prepare_cached(queries::KEY_LOG_READ)?;
    let mut rows = read.query([0, i64::MAX])?;
    while let Some(row) = rows.next()? {
        if let Some((_, seq)) = claims(row)?.find(|(noted, _)| noted == key) {
            return Ok(Some(seq));
        }
    }
    Ok(None)
}

/// Removes the claim of a seq, if there is one; the rest of its run stays.
pub(super) fn forget(conn: &Connection, seq: Seq) -> rusqlite::Result<()> {
    let run = conn
        .prepare_cached(queries::KEY_LOG_AROUND)?
        .query_row([seq.0], |row| claims(row).map(Iterator::collect::<Vec<_>>))
        .optional()?
        .unwrap_or_default();
    let Some(at) = run.iter().position(|(_, place)| *place == seq) else { return Ok(()) };
    conn.prepare_cached(queries::KEY_LOG_FORGET)?.execute([run[0].1.0])?;
    append(conn, &run[..at])?;
    append(conn, &run[at + 1..])?;
    Ok(())
}

fn whole_keys(value: ValueRef<'_>) -> rusqlite::Result<&[[u8; KEY_BYTES]]> {
    match value.as_blob().map(<[u8]>::as_chunks) {
        Ok((keys, [])) if !keys.is_empty() => Ok(keys),
        _ => Err(damaged("a run of noted keys")),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use admit_testkit::rng::Rng;

    use super::*;
    use crate::sqlite::keys::pages::tests::empty;

    fn noted(conn: &Connection) -> BTreeMap<Seq, Key> {
        let mut read = conn.prepare(queries::KEY_LOG_READ).unwrap();
        let mut rows = read.query([0, i64::MAX]).unwrap();
        let mut all = BTreeMap::new();
        while let Some(row) = rows.next().unwrap() {
            for (key, seq) in claims(row).unwrap() {
                assert!(all.insert(seq, key).is_none(), "place {} is noted twice", seq.0);
            }
        }
        all
    }

    /// Runs of all lengths with gaps between them, random removals, compared with the view.
    #[test]
    fn exactly_the_logged_keys_that_are_not_forgotten_are_found() {
        for seed in 1..=20 {
            println!("seed {seed}");
            let mut rng = Rng::seeded(seed);
            let conn = empty();
            let (mut known, mut place) = (BTreeMap::new(), 0);
            for _ in 0..rng.below(12) {
                let mut batch = Vec::new();
                for _ in 0..rng.below(120) {
                    place += if rng.one_in(20) { 1 + rng.below(4) } else { 1 };
                    let key = Key::derive("noted", &[&rng.next_u64().to_be_bytes()]);
                    batch.push((key, Seq(place)));
                }
                append(&conn, &batch).unwrap();
                known.extend(batch.into_iter().map(|(key, seq)| (seq, key)));
                for _ in 0..rng.below(9) {
                    let seq = Seq(rng.below(place + 2));
                    forget(&conn, seq).unwrap();
                    known.remove(&seq);
                }
            }
            assert_eq!(noted(&conn), known);
            let mut view = conn.prepare("SELECT seq, key FROM claimed_key").unwrap();
            let view =
                view.query_map([], |row| Ok((Seq(row.get(0)?), Key::from_bytes(row.get(1)?))));
            assert_eq!(view.unwrap().collect::<rusqlite::Result<BTreeMap<_, _>>>().unwrap(), known);
            for (seq, key) in known.iter().step_by(7) {
                assert_eq!(find(&conn, key).unwrap(), Some(*seq));
            }
            assert_eq!(find(&conn, &Key::derive("noted", &[b"unknown"])).unwrap(), None);
        }
    }

    #[test]
    fn neighbours_share_a_row_and_are_forgotten_together() {
        let conn = empty();
        let key = |n: u64| Key::derive("noted", &[&n.to_be_bytes()]);
        let places = (1..=70).chain([80]).chain(90..=91);
        append(&conn, &places.map(|n| (key(n), Seq(n))).collect::<Vec<_>>()).unwrap();
        let mut lengths = conn.prepare("SELECT seq, length(key) / 32 FROM key_log").unwrap();
        let lengths = lengths.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap();
        let lengths: Vec<(u64, usize)> = lengths.map(Result::unwrap).collect();
        assert_eq!(lengths, [(1, 31), (32, 31), (63, 8), (80, 1), (90, 2)]);
        for (floor, wanted, is_all, left) in [
            (85, 40, false, vec![63, 80, 90]),
            (85, 1, false, vec![80, 90]),
            (85, 9, true, vec![90]),
        ] {
            assert_eq!(trim(&conn, Seq(floor), wanted).unwrap(), is_all);
            let mut begin = conn.prepare("SELECT seq FROM key_log").unwrap();
            let begin = begin.query_map([], |row| row.get(0)).unwrap();
            assert_eq!(begin.map(Result::unwrap).collect::<Vec<u64>>(), left);
        }
    }

    #[test]
    fn a_row_that_is_cut_off_is_an_error_and_not_a_shorter_run() {
        let conn = empty();
        for length in [0, 31, 33, 63] {
            conn.execute("INSERT OR REPLACE INTO key_log VALUES (1, zeroblob(?1))", [length])
                .unwrap();
            assert!(find(&conn, &Key::derive("noted", &[])).is_err(), "{length} bytes");
        }
    }
}
