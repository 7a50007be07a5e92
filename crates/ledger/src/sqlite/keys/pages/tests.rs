//! Pages of merged claims, compared with a map.

use std::collections::BTreeMap;

use admit_testkit::rng::Rng;

use super::*;

/// An empty ledger in memory.
pub(in crate::sqlite::keys) fn empty() -> Connection {
    let conn = Connection::open_in_memory().unwrap();
    conn.execute_batch(include_str!("../../migrations/0001_ledger.sql")).unwrap();
    conn.execute_batch(include_str!("../../migrations/0010_key_pages.sql")).unwrap();
    conn
}

/// Keys, some with the same prefix, so that some rows are long, and a few that differ only at the end.
fn random_key(rng: &mut Rng) -> Key {
    let mut bytes = *Key::derive("pages", &[&rng.next_u64().to_be_bytes()]).as_bytes();
    match rng.below(4) {
        0 => bytes[..7].fill(7),
        1 => {
            bytes = [9; 32];
            bytes[31] = u8::try_from(rng.below(256)).unwrap();
        }
        _ => {}
    }
    Key::from_bytes(bytes)
}

/// The content of the pages; checks their order, their bounds and their lengths.
fn all(conn: &Connection) -> BTreeMap<Key, Seq> {
    let mut read = conn.prepare("SELECT first, claims FROM key_page ORDER BY first").unwrap();
    let mut rows = read.query([]).unwrap();
    let (mut found, mut last) = (BTreeMap::new(), None);
    while let Some(row) = rows.next().unwrap() {
        let first: i64 = row.get(0).unwrap();
        let claims = unpack(row.get_ref(1).unwrap()).unwrap();
        assert!(
            last.is_none_or(|(_, key)| key_prefix(&key) < first),
            "a row begins before the last ends"
        );
        let leads: Vec<i64> = claims.iter().map(prefix_of).collect();
        assert!(leads.iter().all(|key_prefix| *key_prefix >= first), "a key is before its row");
        let alike = leads.chunk_by(|one, next| one == next).map(<[_]>::len).max().unwrap_or(0);
        assert!(
            claims.len() <= ROW_CLAIMS_MAX.max(ROW_CLAIMS + alike),
            "{} in a row",
            claims.len()
        );
        for claim in claims {
            let (key, seq) = (Key::from_bytes(*key_of(claim)), seq_of(claim));
            assert!(last.is_none_or(|(_, before)| before < key), "out of order");
            last = Some((first, key));
            found.insert(key, seq);
        }
    }
    found
}

/// Slices of all sizes, repeated claims, excluded claims, and forgotten keys.
#[test]
fn exactly_the_merged_keys_that_are_not_forgotten_are_found() {
    for seed in 1..=6 {
        println!("seed {seed}");
        let mut rng = Rng::seeded(seed);
        let conn = empty();
        let (mut known, mut place) = (BTreeMap::new(), 0xff_ffff_f000);
        for _ in 0..30 {
            let mut incoming = BTreeMap::new();
            for _ in 0..rng.below(400) {
                place += 1;
                let key = random_key(&mut rng);
                incoming.insert(key, *known.get(&key).unwrap_or(&Seq(place)));
            }
            let incoming: Vec<_> = incoming.into_iter().collect();
            let gone = incoming.first().map(|(key, _)| *key).filter(|_| rng.one_in(2));
            let mut merged = 0;
            while merged < incoming.len() {
                let wanted = 1 + rng.below(90) as usize;
                let count =
                    merge(&conn, &incoming[merged..], wanted, |key| Some(*key) == gone).unwrap();
                assert!(count >= wanted.min(incoming.len() - merged));
                merged += count;
            }
            known.extend(incoming.into_iter().filter(|(key, _)| Some(*key) != gone));
            for _ in 0..rng.below(60) {
                let key = random_key(&mut rng);
                let near =
                    known.range(key..).next().map_or((key, Seq(1)), |(key, seq)| (*key, *seq));
                let is_known = known.remove(&near.0).is_some();
                assert_eq!(forget(&conn, &near.0, near.1).unwrap(), is_known);
            }
            assert_eq!(all(&conn), known);
        }
        for (key, seq) in &known {
            assert_eq!(find(&conn, key).unwrap(), Some(*seq));
            assert!(!forget(&conn, key, Seq(seq.0 + 1)).unwrap(), "another place claimed it");
        }
        for _ in 0..200 {
            let key = random_key(&mut rng);
            assert_eq!(find(&conn, &key).unwrap(), known.get(&key).copied());
        }
        let mut view = conn.prepare("SELECT key, seq FROM claimed_key").unwrap();
        let view = view.query_map([], |row| Ok((Key::from_bytes(row.get(0)?), Seq(row.get(1)?))));
        assert_eq!(view.unwrap().collect::<rusqlite::Result<BTreeMap<_, _>>>().unwrap(), known);
    }
}

#[test]
fn a_key_that_another_place_has_claimed_is_refused() {
    let conn = empty();
    let key = |n: u64| Key::derive("pages", &[&n.to_be_bytes()]);
    let mut claims: Vec<_> = (1..=500).map(|n| (key(n), Seq(n))).collect();
    claims.sort_unstable();
    assert_eq!(merge(&conn, &claims, claims.len(), |_| false).unwrap(), 500);
    assert_eq!(merge(&conn, &claims, claims.len(), |_| false).unwrap(), 500, "the same again");
    let again = merge(&conn, &[(key(7), Seq(501))], 1, |_| false).unwrap_err();
    let message = again.to_string();
    assert!(message.ends_with("was claimed by place 7 and again by place 501"), "{message}");
}

#[test]
fn the_plain_index_is_migrated_and_emptied() {
    let conn = empty();
    let claims: BTreeMap<_, _> =
        (1..=1_000).map(|n: u64| (Key::derive("plain", &[&n.to_be_bytes()]), Seq(n))).collect();
    for (key, seq) in &claims {
        conn.execute(queries::KEY_CLAIM, (key.as_bytes(), seq.0)).unwrap();
    }
    migrate_plain_index(&conn).unwrap();
    assert_eq!(all(&conn), claims);
    let left: u64 = conn.query_row("SELECT count(*) FROM key_index", [], |row| row.get(0)).unwrap();
    assert_eq!(left, 0);
}

#[test]
fn a_row_that_is_cut_off_is_an_error_and_not_a_shorter_one() {
    let conn = empty();
    for length in [1, CLAIM_BYTES - 1, CLAIM_BYTES + 1] {
        conn.execute("INSERT OR REPLACE INTO key_page VALUES (0, zeroblob(?1))", [length]).unwrap();
        assert!(find(&conn, &Key::derive("pages", &[])).is_err(), "{length} bytes");
    }
}
