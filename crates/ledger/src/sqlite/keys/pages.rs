//! Merged claims: the rows of `key_page`.
//!
//! A row holds some two hundred keys in their order, each with the place that claimed it, and fills a
//! page of the file. Rows follow each other in the order of keys: each begins where `first` says, which
//! is the beginning of a key as a number, and ends where the next one begins. So many keys are merged for
//! the price of one row, where an index of single keys would be asked, and changed, for each.
//!
//! No key is in here twice. Merging compares every key with its neighbours, finds one that is there
//! already, and refuses it when another place has claimed it.

use std::cmp::Ordering;

use admit_core::{Key, Seq};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};

use super::{ClaimError, ClaimedTwice, damaged};
use crate::sqlite::queries;

pub(super) const KEY_BYTES: usize = 32;

/// A place in six bytes: enough for a hundred thousand events a second for eighty years.
const PLACE_BYTES: usize = 6;

/// A key and its place, the highest byte of either first.
pub(super) const CLAIM_BYTES: usize = KEY_BYTES + PLACE_BYTES;

/// As many as a page of 8 KiB holds in one row.
const ROW_CLAIMS_MAX: usize = 214;

/// A row that would be longer is divided into such of at most so many: they have room to grow.
const ROW_CLAIMS: usize = 160;

/// So many claims of the plain index are taken over in one commit, and so many commits go by before the
/// log is copied.
const TAKE_OVER_CLAIMS: usize = 20_000;
const TAKE_OVER_COMMITS: usize = 50;

/// Where no row begins, and every row comes after.
pub(super) const BEFORE_ALL: i64 = -1;

/// So many rows are read at a time, which takes a few milliseconds.
pub(super) const READ_ROWS: usize = 32;

/// A claim as it is kept.
type Kept = [u8; CLAIM_BYTES];

/// The beginning of a key as a number that SQLite can hold, in the same order.
pub(super) fn lead(key: &Key) -> i64 {
    let bytes = key.as_bytes().first_chunk().expect("a key has 32 bytes");
    (u64::from_be_bytes(*bytes) >> 1).cast_signed()
}

/// Whether the ledger has any pages, which is since the first start of a version that makes them.
pub(super) fn exist(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'key_page'")?.exists([])
}

/// Who claimed `key`, among merged claims.
pub(super) fn find(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
    let mut around = conn.prepare_cached(queries::KEY_PAGE_AROUND)?;
    let mut rows = around.query([lead(key)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let claims = whole(row.get_ref(1)?)?;
    let at = claims.binary_search_by(|kept| key_of(kept).cmp(key.as_bytes())).ok();
    Ok(at.map(|at| place_of(&claims[at])))
}

/// Merges claims, which are in the order of their keys: at least so many as are wanted, and with the last of
/// them all that go into the same row. Returns how many that were, with those that `is_gone` leaves out.
pub(super) fn merge(
    conn: &Connection,
    claims: &[(Key, Seq)],
    wanted: usize,
    is_gone: impl Fn(&Key) -> bool,
) -> Result<usize, ClaimError> {
    let mut merged = 0;
    while merged < wanted.min(claims.len()) {
        let row = Around::of(conn, &claims[merged].0)?;
        let rest = &claims[merged..];
        let count =
            row.next.map_or(rest.len(), |next| rest.partition_point(|it| lead(&it.0) < next));
        let told = rest[..count].iter().filter(|(key, _)| !is_gone(key));
        if let Some(claims) = merged_with(&row.claims, told)? {
            put(conn, row.first, &claims)?;
        }
        merged += count;
    }
    Ok(merged)
}

/// Forgets the claim of `key` by `seq`; `false` when there is none.
pub(super) fn forget(conn: &Connection, key: &Key, seq: Seq) -> rusqlite::Result<bool> {
    let mut row = Around::of(conn, key)?;
    let claim = kept(key, seq);
    let Ok(at) = row.claims.binary_search(&claim) else { return Ok(false) };
    row.claims.remove(at);
    put(conn, row.first, &row.claims)?;
    Ok(true)
}

/// Hands the claims of at most so many rows that begin after `after` to `each`. Returns where the last of
/// them begins, unless they were the last of all.
pub(super) fn read(
    conn: &Connection,
    after: i64,
    rows_max: usize,
    mut each: impl FnMut(Key, Seq),
) -> rusqlite::Result<Option<i64>> {
    let mut read = conn.prepare_cached(queries::KEY_PAGE_READ)?;
    let mut rows = read.query((after, rows_max))?;
    let (mut count, mut last) = (0, after);
    while let Some(row) = rows.next()? {
        for kept in whole(row.get_ref(1)?)? {
            each(Key::from_bytes(*key_of(kept)), place_of(kept));
        }
        last = row.get(0)?;
        count += 1;
    }
    Ok((count == rows_max).then_some(last))
}

/// Hands every merged claim to `each`.
pub(super) fn read_all(conn: &Connection, mut each: impl FnMut(Key, Seq)) -> rusqlite::Result<()> {
    let mut after = Some(BEFORE_ALL);
    while let Some(first) = after {
        after = read(conn, first, READ_ROWS, &mut each)?;
    }
    Ok(())
}

/// Takes over what is in the plain index: a ledger of an earlier version, or one that was kept that way.
pub(in crate::sqlite) fn take_over(conn: &Connection) -> Result<(), ClaimError> {
    let mut taken = 0;
    for commit in 1.. {
        let claims = conn
            .prepare_cached(queries::KEY_INDEX_READ)?
            .query_map([TAKE_OVER_CLAIMS], |row| {
                Ok((Key::from_bytes(row.get(0)?), Seq(row.get(1)?)))
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let Some((last, _)) = claims.last() else { return Ok(()) };
        let tx = conn.unchecked_transaction()?;
        merge(conn, &claims, claims.len(), |_| false)?;
        conn.prepare_cached(queries::KEY_INDEX_TRIM)?.execute([last.as_bytes()])?;
        tx.commit()?;
        taken += claims.len();
        if commit % TAKE_OVER_COMMITS == 0 {
            tracing::info!(keys = taken, "the keys of this ledger are brought into pages, once");
            conn.query_row(queries::CHECKPOINT_PASSIVE, [], |_| Ok(()))?;
        }
    }
    Ok(())
}

/// The row that a key is in, or would be.
struct Around {
    first: i64,
    claims: Vec<Kept>,
    /// Where the next one begins, if there is one.
    next: Option<i64>,
}

impl Around {
    fn of(conn: &Connection, key: &Key) -> rusqlite::Result<Self> {
        let found = conn
            .prepare_cached(queries::KEY_PAGE_AROUND)?
            .query_row([lead(key)], |row| {
                let claims = whole(row.get_ref(1)?)?.to_vec();
                Ok(Self { first: row.get(0)?, claims, next: row.get(2)? })
            })
            .optional()?;
        // The first of all begins at zero, so that there is one for every key.
        Ok(found.unwrap_or(Self { first: 0, claims: Vec::new(), next: None }))
    }
}

/// Both in the order of their keys; `None` when nothing new was told.
fn merged_with<'c>(
    known: &[Kept],
    told: impl Iterator<Item = &'c (Key, Seq)>,
) -> Result<Option<Vec<Kept>>, ClaimedTwice> {
    let mut all = Vec::with_capacity(known.len() + told.size_hint().1.unwrap_or(0));
    let mut from = 0;
    for (key, seq) in told {
        let order = |kept: &Kept| key_of(kept).cmp(key.as_bytes());
        let until = from + known[from..].partition_point(|kept| order(kept) == Ordering::Less);
        all.extend_from_slice(&known[from..until]);
        from = until;
        match known.get(until).filter(|kept| order(kept) == Ordering::Equal).map(place_of) {
            None => all.push(kept(key, *seq)),
            Some(first) if first == *seq => {}
            Some(first) => return Err(ClaimedTwice { key: *key, first, second: *seq }),
        }
    }
    all.extend_from_slice(&known[from..]);
    Ok((all.len() > known.len()).then_some(all))
}

/// Writes a row, in several where it has grown too long.
fn put(conn: &Connection, first: i64, claims: &[Kept]) -> rusqlite::Result<()> {
    let mut put = conn.prepare_cached(queries::KEY_PAGE_PUT)?;
    let rows = if claims.len() <= ROW_CLAIMS_MAX { 1 } else { claims.len().div_ceil(ROW_CLAIMS) };
    let (mut first, mut left) = (first, claims);
    for rows in (1..=rows).rev() {
        let mut len = left.len().div_ceil(rows);
        // Keys that begin alike stay together: a row is found by how a key begins.
        while len > 0 && len < left.len() && lead_of(&left[len - 1]) == lead_of(&left[len]) {
            len += 1;
        }
        let (row, rest) = left.split_at(len);
        put.execute((first, row.as_flattened()))?;
        let Some(next) = rest.first() else { break };
        (first, left) = (lead_of(next), rest);
    }
    Ok(())
}

fn kept(key: &Key, seq: Seq) -> Kept {
    assert!(
        seq.0 >> (8 * PLACE_BYTES) == 0,
        "place {} has more bytes than there is room for",
        seq.0
    );
    let mut kept = [0; CLAIM_BYTES];
    kept[..KEY_BYTES].copy_from_slice(key.as_bytes());
    kept[KEY_BYTES..].copy_from_slice(&seq.0.to_be_bytes()[8 - PLACE_BYTES..]);
    kept
}

fn key_of(kept: &Kept) -> &[u8; KEY_BYTES] {
    kept.first_chunk().expect("it begins with a key")
}

fn place_of(kept: &Kept) -> Seq {
    let mut bytes = [0; 8];
    bytes[8 - PLACE_BYTES..].copy_from_slice(&kept[KEY_BYTES..]);
    Seq(u64::from_be_bytes(bytes))
}

fn lead_of(kept: &Kept) -> i64 {
    lead(&Key::from_bytes(*key_of(kept)))
}

fn whole(value: ValueRef<'_>) -> rusqlite::Result<&[Kept]> {
    match value.as_blob().map(<[u8]>::as_chunks) {
        Ok((claims, [])) => Ok(claims),
        _ => Err(damaged("a page of keys")),
    }
}

#[cfg(test)]
pub(super) mod tests;
