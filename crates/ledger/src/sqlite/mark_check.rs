//! Whether everything that was acknowledged is in the ledger, by the mark beside it (decision 0040).
//!
//! SQLite takes whatever log it finds, or none. The mark of a killed gate says how far its commits went and
//! which generation of the log they are in: a ledger that ends before that has lost its log, or part of it.

use std::path::{Path, PathBuf};

use admit_sqlite_log::mark::{self, Found, InUse, Reach};
use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use super::log_check::{self, Header};
use super::{OpenError, identity, open, queries};

/// Counts commits with work other than recording, which give out no place.
pub(super) const TASK_COMMITS: &str = "task_commits";

/// The mark beside a ledger.
pub(super) fn mark_of(ledger: &Path) -> PathBuf {
    ledger.with_file_name(mark::NAME)
}

/// Refuses a ledger that lacks what was acknowledged, or may lack it. Nothing is changed.
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
        Found::Missing => return Ok(()),
        Found::Clear(least) => {
            let reach = reach_of(ledger, header_of(&log)?)?;
            return judge_cleared(least, reach).map_or(Ok(()), |what| Err(lost(what)));
        }
        Found::Unreadable => {
            return Err(lost("may be missing from the ledger: its mark is damaged".to_owned()));
        }
        Found::InUse(in_use) => in_use,
    };
    let header = header_of(&log)?;
    let reach = reach_of(ledger, header)?;
    judge(&in_use, header, reach).map_or(Ok(()), |what| Err(lost(what)))
}

fn header_of(log: &Path) -> Result<Header, OpenError> {
    log_check::header(log).map_err(|source| OpenError::Folder { path: log.to_owned(), source })
}

/// What is wrong, if anything is, with a ledger that had everything up to `least` in its file. One that cannot be
/// read is damaged, and opening it says how.
fn judge_cleared(least: Reach, reach: Option<Reach>) -> Option<String> {
    let reach = reach?;
    let last = reach.last_seq;
    if last < least.last_seq {
        return Some(format!(
            "are missing from the ledger: its file is an older one; places up to {} at least were given out, \
             and the ledger ends at {last}",
            least.last_seq
        ));
    }
    (reach.tasks < least.tasks).then(|| {
        format!(
            "are in the ledger up to place {last}, but what was done with them (claims, effects, \
             retention) is missing: its file is an older one"
        )
    })
}

/// What is wrong, if anything is. `reach` is how far the ledger goes with the log it has; none where it
/// cannot be read.
fn judge(in_use: &InUse, header: Header, reach: Option<Reach>) -> Option<String> {
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
        // With its log, what is wrong is not the log: the file is damaged, and opening it says how.
        let what = format!("are missing from the ledger: {log}, and nothing of it can be read");
        return (!is_expected).then_some(what);
    };
    let last = reach.last_seq;
    if last < least {
        return Some(format!(
            "are missing from the ledger: {log}; places up to {least} at least were given out, and the \
             ledger ends at {last}"
        ));
    }
    if reach.tasks < in_use.reach.tasks {
        return Some(format!(
            "are in the ledger up to place {last}, but what was done with them (claims, effects, \
             retention) is missing: {log}"
        ));
    }
    if in_use.is_exact || is_expected {
        return None;
    }
    Some(format!(
        "may be missing from the ledger: {log}, and the machine was restarted since it was written. The \
         ledger ends at place {last}. If another program (such as sqlite3) opened it meanwhile, that has \
         brought the log into the file, and nothing is missing"
    ))
}

/// How far the ledger goes, with its log where SQLite would take it; none where it cannot be read, or where the
/// log makes another ledger of it.
fn reach_of(ledger: &Path, header: Header) -> Result<Option<Reach>, OpenError> {
    let id = identity::read(ledger)?;
    let read = || {
        let conn = match header {
            Header::Whole(_) => open::looking(ledger)?,
            // Without a look at the log, and without making one.
            Header::Missing | Header::Empty | Header::Unreadable => file_alone(ledger)?,
        };
        let tag = conn.query_row(queries::META_GET, ["tag"], |row| row.get::<_, u32>(0));
        let is_ours = id.is_none() || id == tag.optional()?;
        Ok::<_, rusqlite::Error>(if is_ours { Some(reach(&conn)?) } else { None })
    };
    Ok(read().unwrap_or(None))
}

/// How far the commits of a ledger go.
pub(super) fn reach(conn: &Connection) -> rusqlite::Result<Reach> {
    let value = |name: &str| {
        let known = conn.query_row(queries::META_GET, [name], |row| row.get::<_, u64>(0));
        Ok::<_, rusqlite::Error>(known.optional()?.unwrap_or(0))
    };
    Ok(Reach { last_seq: value("last_seq")?, tasks: value(TASK_COMMITS)? })
}

/// The database file as if there were no log. SQLite locks nothing and makes no file.
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

    fn in_use(is_exact: bool) -> InUse {
        InUse { salts: vec![OURS], reach: Reach { last_seq: 50, tasks: 3 }, is_exact }
    }

    /// Every header, and whether it is of the log that was in use.
    const HEADERS: [(Header, bool); 5] = [
        (Header::Missing, false),
        (Header::Empty, false),
        (Header::Unreadable, false),
        (Header::Whole(*b"another1"), false),
        (Header::Whole(OURS), true),
    ];

    #[test]
    fn a_ledger_that_ends_before_its_mark_has_lost_something_whatever_log_there_is() {
        for (header, is_expected) in HEADERS {
            for is_exact in [false, true] {
                for less in [(49, 3), (50, 2), (0, 0)] {
                    let reach = Reach { last_seq: less.0, tasks: less.1 };
                    let what = judge(&in_use(is_exact), header, Some(reach)).unwrap();
                    assert!(what.contains("missing") && !what.contains("may be"), "{what}");
                }
                assert_eq!(judge(&in_use(is_exact), header, None).is_none(), is_expected);
            }
        }
    }

    #[test]
    fn a_ledger_that_has_everything_is_taken_unless_the_machine_was_restarted_without_its_log() {
        for (header, is_expected) in HEADERS {
            for (last_seq, tasks) in [(50, 3), (51, 3), (50, 4)] {
                let reach = Some(Reach { last_seq, tasks });
                assert_eq!(judge(&in_use(true), header, reach), None, "{header:?}");
                let what = judge(&in_use(false), header, reach);
                assert_eq!(what.is_none(), is_expected, "{header:?}: {what:?}");
                assert!(what.is_none_or(|what| what.contains("may be missing")));
            }
        }
    }

    #[test]
    fn the_file_alone_is_read_wherever_it_lies_and_nothing_is_made_beside_it() {
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
}
