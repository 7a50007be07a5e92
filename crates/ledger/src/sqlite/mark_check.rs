//! Checks by the mark beside the ledger that everything acknowledged is in it (decision 0040).
//!
//! SQLite reads any WAL it finds, or none. The mark of a killed gate holds the last acknowledged commit and
//! the generation of the WAL: a ledger that ends earlier has lost its WAL, or part of it.

use std::path::{Path, PathBuf};

use admit_sqlite_log::mark::{self, CommitPosition, MarkStatus, WalInUse};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::wal_check::{self, Header};
use super::{OpenError, identity, open, queries};

/// Name of the stored number of commits with write operations, which assign no seq.
pub(super) const TASK_COMMITS: &str = "task_commits";

/// Path of the mark.
pub(super) fn mark_of(ledger: &Path) -> PathBuf {
    ledger.with_file_name(mark::NAME)
}

/// Refuses a ledger that lacks acknowledged events, or may lack them. Changes nothing.
pub(super) fn check(ledger: &Path) -> Result<(), OpenError> {
    let (mark, log) = (mark_of(ledger), open::log_of(ledger));
    let lost = |what| OpenError::Lost {
        path: ledger.to_owned(),
        what,
        log: log.clone(),
        mark: mark.clone(),
    };
    let read = mark::read(&mark);
    let found = read.map_err(|source| OpenError::Folder { path: mark.clone(), source })?;
    let in_use = match found {
        MarkStatus::Missing => return Ok(()),
        MarkStatus::Clear(least) => {
            let reach = reach_of(ledger, header_of(&log)?)?;
            return find_loss_after_clear(least, reach).map_or(Ok(()), |what| Err(lost(what)));
        }
        MarkStatus::Unreadable => {
            return Err(lost("may be missing from the ledger: its mark is damaged".to_owned()));
        }
        MarkStatus::InUse(in_use) => in_use,
    };
    let header = header_of(&log)?;
    let reach = reach_of(ledger, header)?;
    let unreadable = |source| OpenError::Folder { path: log.clone(), source };
    if in_use.copying.is_some_and(|salts| header == Header::Whole(salts))
        && !wal_check::has_commit(&log).map_err(unreadable)?
    {
        return Err(lost(partly_copied("its log holds no commit", reach)));
    }
    find_loss(&in_use, header, reach).map_or(Ok(()), |what| Err(lost(what)))
}

fn header_of(log: &Path) -> Result<Header, OpenError> {
    wal_check::header(log).map_err(|source| OpenError::Folder { path: log.to_owned(), source })
}

/// Returns what is wrong, if anything, with a ledger that had everything up to `least` in its file. An
/// unreadable one is damaged, and opening it reports that.
fn find_loss_after_clear(least: CommitPosition, reach: Option<CommitPosition>) -> Option<String> {
    let reach = reach?;
    let last = reach.last_seq;
    if last < least.last_seq {
        return Some(format!(
            "are missing from the ledger: its file is an older one; seqs up to {} at least were assigned, \
             and the ledger ends at {last}",
            least.last_seq
        ));
    }
    (reach.tasks < least.tasks).then(|| {
        format!(
            "are in the ledger up to seq {last}, but later operations on them (claims, effects, \
             retention) are missing: its file is an older one"
        )
    })
}

/// Returns what is wrong, if anything. `reach` is the last commit of the ledger with the WAL it has; `None`
/// if it is unreadable.
fn find_loss(in_use: &WalInUse, header: Header, reach: Option<CommitPosition>) -> Option<String> {
    let is_expected = matches!(header, Header::Whole(salts) if in_use.salts.contains(&salts));
    let log = match header {
        Header::Missing => "its log is missing",
        Header::Empty => "its log is empty",
        Header::Unreadable => "its log has no readable header",
        Header::Whole(_) if is_expected => "its log ends too early",
        Header::Whole(_) => "its log is not the one that was in use",
    };
    let least = in_use.reach.last_seq;
    let Some(reach) = reach else {
        // With its WAL, the problem is not the WAL: the file is damaged, and opening it reports that.
        let what = format!("are missing from the ledger: {log}, and nothing of it can be read");
        return (!is_expected).then_some(what);
    };
    let last = reach.last_seq;
    if last < least {
        return Some(format!(
            "are missing from the ledger: {log}; seqs up to {least} at least were assigned, and the \
             ledger ends at {last}"
        ));
    }
    if reach.tasks < in_use.reach.tasks {
        return Some(format!(
            "are in the ledger up to seq {last}, but later operations on them (claims, effects, \
             retention) are missing: {log}"
        ));
    }
    if is_expected {
        return None;
    }
    if in_use.copying.is_some() {
        return Some(partly_copied(log, Some(reach)));
    }
    if in_use.is_exact {
        return None;
    }
    Some(format!(
        "may be missing from the ledger: {log}, and the machine was restarted since it was written. The \
         ledger ends at seq {last}. If another program (such as sqlite3) opened it meanwhile, that has \
         brought the log into the file, and nothing is missing"
    ))
}

/// Message for a file that was being written from its log: it may hold some pages of a commit and not the
/// others, even those that hold how far it goes.
fn partly_copied(log: &str, reach: Option<CommitPosition>) -> String {
    let last = reach.map_or(0, |reach| reach.last_seq);
    format!(
        "may be missing from the ledger: {log}, and the gate was killed while it copied the log into the \
         file. The ledger seems to end at place {last}, but parts of it may be older. If another program \
         (such as sqlite3) opened it meanwhile, that has brought the log into the file, and nothing is \
         missing"
    )
}

/// Returns the last commit of the ledger, including its WAL if SQLite would read it; `None` if it is
/// unreadable, or belongs to another ledger because of its WAL.
fn reach_of(ledger: &Path, header: Header) -> Result<Option<CommitPosition>, OpenError> {
    let id = identity::read(ledger)?;
    let read = || {
        let conn = match header {
            Header::Whole(_) => open::open_read_only(ledger)?,
            // Without reading the WAL, and without creating one.
            Header::Missing | Header::Empty | Header::Unreadable => file_alone(ledger)?,
        };
        let tag = conn.query_row(queries::META_GET, ["tag"], |row| row.get::<_, u32>(0));
        let is_ours = id.is_none() || id == tag.optional()?;
        Ok::<_, rusqlite::Error>(if is_ours { Some(reach(&conn)?) } else { None })
    };
    Ok(read().unwrap_or(None))
}

/// Returns the last commit of a ledger.
pub(super) fn reach(conn: &Connection) -> rusqlite::Result<CommitPosition> {
    let value = |name: &str| {
        let known = conn.query_row(queries::META_GET, [name], |row| row.get::<_, u64>(0));
        Ok::<_, rusqlite::Error>(known.optional()?.unwrap_or(0))
    };
    Ok(CommitPosition { last_seq: value("last_seq")?, tasks: value(TASK_COMMITS)? })
}

/// Opens the database file without its WAL. SQLite locks nothing and creates no file.
fn file_alone(ledger: &Path) -> rusqlite::Result<Connection> {
    use std::os::unix::ffi::OsStrExt as _;
    let mut uri = "file:".to_owned();
    for byte in ledger.as_os_str().as_bytes() {
        match byte {
            b'/' | b'.' | b'-' | b'_' => uri.push(char::from(*byte)),
            byte if byte.is_ascii_alphanumeric() => uri.push(char::from(*byte)),
            byte => uri.push_str(&format!("%{byte:02X}")),
        }
    }
    uri.push_str("?immutable=1");
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    Connection::open_with_flags(uri, flags)
}

#[cfg(test)]
mod tests {
    use super::*;
    use admit_sqlite_log::mark::Salts;

    const OURS: Salts = *b"saltsalt";

    fn in_use(is_exact: bool) -> WalInUse {
        WalInUse {
            salts: vec![OURS],
            reach: CommitPosition { last_seq: 50, tasks: 3 },
            is_exact,
            copying: None,
        }
    }

    /// Every header, and whether it belongs to the WAL in use.
    const HEADERS: [(Header, bool); 5] = [
        (Header::Missing, false),
        (Header::Empty, false),
        (Header::Unreadable, false),
        (Header::Whole(*b"another1"), false),
        (Header::Whole(OURS), true),
    ];

    #[test]
    fn a_ledger_that_ends_before_its_mark_has_lost_events_with_any_wal() {
        for (header, is_expected) in HEADERS {
            for is_exact in [false, true] {
                for less in [(49, 3), (50, 2), (0, 0)] {
                    let reach = CommitPosition { last_seq: less.0, tasks: less.1 };
                    let what = find_loss(&in_use(is_exact), header, Some(reach)).unwrap();
                    assert!(what.contains("missing") && !what.contains("may be"), "{what}");
                }
                assert_eq!(find_loss(&in_use(is_exact), header, None).is_none(), is_expected);
            }
        }
    }

    #[test]
    fn a_complete_ledger_is_accepted_unless_the_machine_was_restarted_without_its_wal() {
        for (header, is_expected) in HEADERS {
            for (last_seq, tasks) in [(50, 3), (51, 3), (50, 4)] {
                let reach = Some(CommitPosition { last_seq, tasks });
                assert_eq!(find_loss(&in_use(true), header, reach), None, "{header:?}");
                let what = find_loss(&in_use(false), header, reach);
                assert_eq!(what.is_none(), is_expected, "{header:?}: {what:?}");
                assert!(what.is_none_or(|what| what.contains("may be missing")));
            }
        }
    }

    #[test]
    fn the_file_alone_is_read_at_any_path_and_no_file_is_created() {
        let folder = tempfile::tempdir().unwrap();
        let dir = folder.path().join("a b?c#d%20é");
        std::fs::create_dir(&dir).unwrap();
        let path = dir.join(open::FILE);
        let conn = open::recover(&path).unwrap();
        conn.execute(queries::META_PUT, ("last_seq", 7)).unwrap();
        let alone = |path: &Path| reach(&file_alone(path).unwrap()).unwrap().last_seq;
        assert_eq!(alone(&path), 0, "what is in the log alone is not in the file");
        drop(conn);
        assert_eq!(alone(&path), 7);
        let names: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap()).collect();
        assert_eq!(names.len(), 1, "{names:?}");
    }

    #[test]
    fn a_file_with_an_interrupted_checkpoint_is_refused_without_its_wal() {
        for (header, is_expected) in HEADERS {
            for is_exact in [false, true] {
                let in_use = WalInUse { copying: Some(OURS), ..in_use(is_exact) };
                let what =
                    find_loss(&in_use, header, Some(CommitPosition { last_seq: 50, tasks: 3 }));
                assert_eq!(what.is_none(), is_expected, "{header:?}");
                assert!(what.is_none_or(|what| what.contains("was killed while it copied")));
            }
        }
    }
}
