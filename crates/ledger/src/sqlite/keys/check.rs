//! Reads every claim in the file for `admit verify`: a key that is not where look-ups search for it could be
//! claimed again.

use admit_core::{Key, Seq};
use rusqlite::{Connection, ErrorCode, Row};

use super::merge_cursor::MergeCursor;
use super::pages::{self, BEFORE_ALL, CLAIM_BYTES, KEY_BYTES, READ_ROWS};
use super::{find_merged, key_log};
use crate::sqlite::queries;

/// A claim as stored in the file.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::sqlite) struct CheckedClaim<'f> {
    /// 32 bytes, unless damaged.
    pub(in crate::sqlite) key: &'f [u8],
    pub(in crate::sqlite) seq: Seq,
    /// Whether a look-up for the key finds this claim.
    pub(in crate::sqlite) is_in_place: bool,
}

type Each<'e> = dyn FnMut(CheckedClaim<'_>) -> rusqlite::Result<()> + 'e;

/// Reads a slice of the merged claims: those of the plain index first, then those in pages. Takes and
/// returns the cursor; `None` at the end.
pub(in crate::sqlite) fn merged(
    conn: &Connection,
    after: &[u8],
    rows_max: i64,
    each: &mut Each<'_>,
) -> rusqlite::Result<Option<Vec<u8>>> {
    if let Ok(first) = after.try_into().map(i64::from_be_bytes) {
        let last = in_pages(conn, first, each)?;
        return Ok(last.map(|first| first.to_be_bytes().to_vec()));
    }
    let mut read = conn.prepare_cached(queries::VERIFY_KEYS)?;
    let mut rows = read.query((after, rows_max))?;
    let (mut count, mut last) = (0, Vec::new());
    while let Some(row) = rows.next()? {
        let key = row.get_ref("key")?.as_blob()?;
        each(CheckedClaim { key, seq: Seq(row.get("seq")?), is_in_place: true })?;
        (count, last) = (count + 1, key.to_vec());
    }
    if count == rows_max {
        return Ok(Some(last));
    }
    Ok(pages::exist(conn)?.then(|| BEFORE_ALL.to_be_bytes().to_vec()))
}

fn in_pages(conn: &Connection, after: i64, each: &mut Each<'_>) -> rusqlite::Result<Option<i64>> {
    let mut read = conn.prepare_cached(queries::VERIFY_KEY_PAGES)?;
    let mut rows = read.query((after, READ_ROWS))?;
    let (mut count, mut last) = (0, after);
    while let Some(row) = rows.next()? {
        last = row.get("first")?;
        count += 1;
        let next: Option<i64> = row.get("next")?;
        let mut before: &[u8] = &[];
        let claims = row.get_ref("claims")?;
        // Look-ups search for blobs, not texts.
        let is_blob = claims.as_blob().is_ok();
        for claim in claims.as_bytes().unwrap_or_default().chunks(CLAIM_BYTES) {
            let (key, place) = claim.split_at_checked(KEY_BYTES).unwrap_or((claim, &[]));
            let key_prefix = key.try_into().map(|key| pages::key_prefix(&Key::from_bytes(key)));
            let is_of_row = key_prefix.is_ok_and(|key_prefix| {
                key_prefix >= last && next.is_none_or(|next| key_prefix < next)
            });
            let is_in_place = is_blob && claim.len() == CLAIM_BYTES && is_of_row && before < key;
            let seq = place.iter().fold(0, |seq, byte| seq << 8 | u64::from(*byte));
            each(CheckedClaim { key, seq: Seq(seq), is_in_place })?;
            before = key;
        }
    }
    Ok((count == READ_ROWS).then_some(last))
}

/// Checks logged claims against the merged ones.
pub(in crate::sqlite) struct LoggedClaims<'c> {
    conn: &'c Connection,
    /// Merge progress of the regions, if there are pages.
    cursor: Option<MergeCursor>,
}

impl<'c> LoggedClaims<'c> {
    pub(in crate::sqlite) fn load(conn: &'c Connection) -> rusqlite::Result<Self> {
        let cursor = pages::exist(conn)?.then(|| MergeCursor::load(conn)).transpose()?;
        Ok(Self { conn, cursor })
    }

    /// Reads the claims of a row of `key_log`. A claim found nowhere else is in place, unless its region counts as
    /// merged, so that it would not be loaded.
    pub(in crate::sqlite) fn claims(
        &self,
        row: &Row<'_>,
        each: &mut Each<'_>,
    ) -> rusqlite::Result<()> {
        let Ok(claims) = key_log::claims(row) else {
            // A start would refuse an unreadable row.
            let (first, keys) =
                (row.get::<_, u64>(0)?, row.get_ref(1)?.as_bytes().unwrap_or_default());
            let all = keys.chunks(KEY_BYTES).zip(first..);
            return all
                .map(|(key, seq)| CheckedClaim { key, seq: Seq(seq), is_in_place: false })
                .try_for_each(each);
        };
        for (key, seq) in claims {
            let is_in_place = match find_merged(self.conn, &key) {
                Ok(Some(place)) => place == seq,
                Ok(None) => self.cursor.as_ref().is_none_or(|cursor| !cursor.is_merged(&key, seq)),
                Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseCorrupt) => {
                    false
                }
                Err(error) => return Err(error),
            };
            each(CheckedClaim { key: key.as_bytes(), seq, is_in_place })?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the number of claims, and the seqs of those out of place.
    fn all(conn: &Connection) -> (usize, Vec<Seq>) {
        let (mut count, mut out_of_place, mut after) = (0, Vec::new(), Some(Vec::new()));
        let mut each = |found: CheckedClaim<'_>| {
            count += 1;
            out_of_place.extend((!found.is_in_place).then_some(found.seq));
            Ok(())
        };
        while let Some(at) = after {
            after = merged(conn, &at, 10, &mut each).unwrap();
        }
        let noted = LoggedClaims::load(conn).unwrap();
        let mut rows = conn.prepare("SELECT seq, key FROM key_log").unwrap();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            noted.claims(row, &mut each).unwrap();
        }
        (count, out_of_place)
    }

    #[test]
    fn a_claim_that_would_not_be_found_is_out_of_place() {
        let conn = pages::tests::empty();
        let key = |n: u64| Key::derive("check", &[&n.to_be_bytes()]);
        let mut claims: Vec<_> = (1..=1_000).map(|n| (key(n), Seq(n))).collect();
        claims.sort_unstable();
        pages::merge(&conn, &claims, claims.len(), |_| false).unwrap();
        for n in 2_001..=2_025 {
            conn.execute(queries::KEY_CLAIM, (key(n).as_bytes(), n)).unwrap();
        }
        key_log::append(&conn, &[(key(3_001), Seq(3_001)), (key(3_002), Seq(3_002))]).unwrap();
        assert_eq!(all(&conn), (1_027, Vec::new()));
        for (harm, out_of_place) in [
            // A row begins later than its first key, and ends there.
            ("UPDATE key_page SET first = first + 1 WHERE first > 0", 6),
            // Two claims of a row have changed places.
            (
                "UPDATE key_page SET claims = CAST(substr(claims, 39, 38) || substr(claims, 1, 38)
                 || substr(claims, 77) AS BLOB) WHERE first = 0",
                1,
            ),
            // A row is there twice.
            ("INSERT INTO key_page SELECT first + 1, claims FROM key_page WHERE first = 0", 143),
            ("UPDATE key_page SET claims = CAST(claims || x'00' AS BLOB) WHERE first = 0", 1),
            ("UPDATE key_page SET claims = CAST(claims AS TEXT) WHERE first = 0", 143),
            ("UPDATE key_region SET merged_to = 3001", 1),
            // It is found; that its seq has no such key is detected elsewhere.
            ("UPDATE key_log SET seq = 3000", 0),
            ("INSERT INTO key_log SELECT 9, key FROM key_index LIMIT 1", 1),
        ] {
            conn.execute_batch("BEGIN").unwrap();
            conn.execute_batch(harm).unwrap();
            assert_eq!(all(&conn).1.len(), out_of_place, "{harm}");
            conn.execute_batch("ROLLBACK").unwrap();
        }
    }
}
