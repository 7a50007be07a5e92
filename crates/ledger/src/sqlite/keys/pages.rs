//! Merged claims: the rows of `key_page`.
//!
//! A row holds some two hundred sorted keys, each with the seq that claimed it, and fills a page of the
//! file. Rows are in key order: each begins at `first`, which is the prefix of a key as a number, and ends
//! where the next one begins. So many keys are merged for the price of one row, where an index of single
//! keys would need a look-up and a change for each.
//!
//! No key is stored twice. Merging compares every key with its neighbours, finds an existing one, and
//! rejects it if another seq has claimed it.

use std::cmp::Ordering;

use admit_core::{Key, Seq};
use rusqlite::types::ValueRef;
use rusqlite::{Connection, OptionalExtension};

use super::{ClaimError, ClaimedTwice, damaged};
use crate::sqlite::queries;

pub(super) const KEY_BYTES: usize = 32;

/// Bytes of a seq: enough for a hundred thousand events a second for eighty years.
const PLACE_BYTES: usize = 6;

/// A key and its seq, both big-endian.
pub(super) const CLAIM_BYTES: usize = KEY_BYTES + PLACE_BYTES;

/// Maximum claims in a row: those that fit a page of 8 KiB.
const ROW_CLAIMS_MAX: usize = 214;

/// Claims per row after a split, which leaves room to grow.
const ROW_CLAIMS: usize = 160;

/// Claims of the plain index migrated per commit, and commits per checkpoint.
const MIGRATE_CLAIMS: usize = 20_000;
const MIGRATE_COMMITS: usize = 50;

/// Smaller than any row's `first`.
pub(super) const BEFORE_ALL: i64 = -1;

/// Rows read at a time, which takes a few milliseconds.
pub(super) const READ_ROWS: usize = 32;

/// A claim as stored.
type PackedClaim = [u8; CLAIM_BYTES];

/// The prefix of a key as an integer for SQLite, in key order.
pub(super) fn key_prefix(key: &Key) -> i64 {
    let bytes = key.as_bytes().first_chunk().expect("a key has 32 bytes");
    (u64::from_be_bytes(*bytes) >> 1).cast_signed()
}

/// Whether the table exists; it is created at the first start of a version that has it.
pub(super) fn exist(conn: &Connection) -> rusqlite::Result<bool> {
    conn.prepare_cached("SELECT 1 FROM sqlite_schema WHERE name = 'key_page'")?.exists([])
}

/// Returns the seq that claimed `key`, among merged claims.
pub(super) fn find(conn: &Connection, key: &Key) -> rusqlite::Result<Option<Seq>> {
    let mut around = conn.prepare_cached(queries::KEY_PAGE_AROUND)?;
    let mut rows = around.query([key_prefix(key)])?;
    let Some(row) = rows.next()? else { return Ok(None) };
    let claims = unpack(row.get_ref(1)?)?;
    let at = claims.binary_search_by(|pack| key_of(pack).cmp(key.as_bytes())).ok();
    Ok(at.map(|at| seq_of(&claims[at])))
}

/// Merges claims sorted by key: at least `wanted`, and with the last of them all that go into the same row.
/// Returns how many that were, including those that `is_gone` excludes.
pub(super) fn merge(
    conn: &Connection,
    claims: &[(Key, Seq)],
    wanted: usize,
    is_gone: impl Fn(&Key) -> bool,
) -> Result<usize, ClaimError> {
    let mut merged = 0;
    while merged < wanted.min(claims.len()) {
        let row = PageRow::of(conn, &claims[merged].0)?;
        let rest = &claims[merged..];
        let count =
            row.next.map_or(rest.len(), |next| rest.partition_point(|it| key_prefix(&it.0) < next));
        let incoming = rest[..count].iter().filter(|(key, _)| !is_gone(key));
        if let Some(claims) = merge_claims(&row.claims, incoming)? {
            put(conn, row.first, &claims)?;
        }
        merged += count;
    }
    Ok(merged)
}

/// Forgets the claim of `key` by `seq`; returns `false` if there is none.
pub(super) fn forget(conn: &Connection, key: &Key, seq: Seq) -> rusqlite::Result<bool> {
    let mut row = PageRow::of(conn, key)?;
    let claim = pack(key, seq);
    let Ok(at) = row.claims.binary_search(&claim) else { return Ok(false) };
    row.claims.remove(at);
    put(conn, row.first, &row.claims)?;
    Ok(true)
}

/// Passes the claims of at most `rows_max` rows after `after` to `each`. Returns the cursor to continue,
/// unless these were the last.
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
        for pack in unpack(row.get_ref(1)?)? {
            each(Key::from_bytes(*key_of(pack)), seq_of(pack));
        }
        last = row.get(0)?;
        count += 1;
    }
    Ok((count == rows_max).then_some(last))
}

/// Passes every merged claim to `each`.
pub(super) fn read_all(conn: &Connection, mut each: impl FnMut(Key, Seq)) -> rusqlite::Result<()> {
    let mut after = Some(BEFORE_ALL);
    while let Some(first) = after {
        after = read(conn, first, READ_ROWS, &mut each)?;
    }
    Ok(())
}

/// Migrates the plain index of an earlier version, or of a ledger opened with [`KeyIndexKind::PlainIndex`](super::KeyIndexKind::Plain).
pub(in crate::sqlite) fn migrate_plain_index(conn: &Connection) -> Result<(), ClaimError> {
    let mut taken = 0;
    for commit in 1.. {
        let claims = conn
            .prepare_cached(queries::KEY_INDEX_READ)?
            .query_map([MIGRATE_CLAIMS], |row| {
                Ok((Key::from_bytes(row.get(0)?), Seq(row.get(1)?)))
            })?
            .collect::<rusqlite::Result<Vec<_>>>()?;
        let Some((last, _)) = claims.last() else { return Ok(()) };
        let tx = conn.unchecked_transaction()?;
        merge(conn, &claims, claims.len(), |_| false)?;
        conn.prepare_cached(queries::KEY_INDEX_TRIM)?.execute([last.as_bytes()])?;
        tx.commit()?;
        taken += claims.len();
        if commit % MIGRATE_COMMITS == 0 {
            tracing::info!(keys = taken, "migrating the key index of this ledger to pages");
            conn.query_row(queries::CHECKPOINT_PASSIVE, [], |_| Ok(()))?;
        }
    }
    Ok(())
}

/// The row that a key is in, or would be.
struct PageRow {
    first: i64,
    claims: Vec<PackedClaim>,
    /// Start of the next row, if there is one.
    next: Option<i64>,
}

impl PageRow {
    fn of(conn: &Connection, key: &Key) -> rusqlite::Result<Self> {
        let found = conn
            .prepare_cached(queries::KEY_PAGE_AROUND)?
            .query_row([key_prefix(key)], |row| {
                let claims = unpack(row.get_ref(1)?)?.to_vec();
                Ok(Self { first: row.get(0)?, claims, next: row.get(2)? })
            })
            .optional()?;
        // The first row begins at zero, so that there is one for every key.
        Ok(found.unwrap_or(Self { first: 0, claims: Vec::new(), next: None }))
    }
}

/// Merges both, sorted by key; `None` if nothing is new.
fn merge_claims<'c>(
    known: &[PackedClaim],
    incoming: impl Iterator<Item = &'c (Key, Seq)>,
) -> Result<Option<Vec<PackedClaim>>, ClaimedTwice> {
    let mut all = Vec::with_capacity(known.len() + incoming.size_hint().1.unwrap_or(0));
    let mut from = 0;
    for (key, seq) in incoming {
        let order = |pack: &PackedClaim| key_of(pack).cmp(key.as_bytes());
        let until = from + known[from..].partition_point(|pack| order(pack) == Ordering::Less);
        all.extend_from_slice(&known[from..until]);
        from = until;
        match known.get(until).filter(|pack| order(pack) == Ordering::Equal).map(seq_of) {
            None => all.push(pack(key, *seq)),
            Some(first) if first == *seq => {}
            Some(first) => return Err(ClaimedTwice { key: *key, first, second: *seq }),
        }
    }
    all.extend_from_slice(&known[from..]);
    Ok((all.len() > known.len()).then_some(all))
}

/// Writes a row, split if it has grown too long.
fn put(conn: &Connection, first: i64, claims: &[PackedClaim]) -> rusqlite::Result<()> {
    let mut put = conn.prepare_cached(queries::KEY_PAGE_PUT)?;
    let rows = if claims.len() <= ROW_CLAIMS_MAX { 1 } else { claims.len().div_ceil(ROW_CLAIMS) };
    let (mut first, mut left) = (first, claims);
    for rows in (1..=rows).rev() {
        let mut len = left.len().div_ceil(rows);
        // Keys with the same prefix stay together: a row is found by prefix.
        while len > 0 && len < left.len() && prefix_of(&left[len - 1]) == prefix_of(&left[len]) {
            len += 1;
        }
        let (row, rest) = left.split_at(len);
        put.execute((first, row.as_flattened()))?;
        let Some(next) = rest.first() else { break };
        (first, left) = (prefix_of(next), rest);
    }
    Ok(())
}

fn pack(key: &Key, seq: Seq) -> PackedClaim {
    assert!(
        seq.0 >> (8 * PLACE_BYTES) == 0,
        "place {} has more bytes than there is room for",
        seq.0
    );
    let mut pack = [0; CLAIM_BYTES];
    pack[..KEY_BYTES].copy_from_slice(key.as_bytes());
    pack[KEY_BYTES..].copy_from_slice(&seq.0.to_be_bytes()[8 - PLACE_BYTES..]);
    pack
}

fn key_of(pack: &PackedClaim) -> &[u8; KEY_BYTES] {
    pack.first_chunk().expect("it begins with a key")
}

fn seq_of(pack: &PackedClaim) -> Seq {
    let mut bytes = [0; 8];
    bytes[8 - PLACE_BYTES..].copy_from_slice(&pack[KEY_BYTES..]);
    Seq(u64::from_be_bytes(bytes))
}

fn prefix_of(pack: &PackedClaim) -> i64 {
    key_prefix(&Key::from_bytes(*key_of(pack)))
}

fn unpack(value: ValueRef<'_>) -> rusqlite::Result<&[PackedClaim]> {
    match value.as_blob().map(<[u8]>::as_chunks) {
        Ok((claims, [])) => Ok(claims),
        _ => Err(damaged("a page of keys")),
    }
}

#[cfg(test)]
pub(super) mod tests;
