//! How commands end and what they print: tables for people, JSON for programs.

use std::io::{self, Write as _};
use std::process::ExitCode;

use admit_core::with_causes;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;

use crate::logs;

/// Why a command did not do what it was asked to.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: FailureKind,
    message: String,
}

/// What the exit code says to scripts and service managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    /// Something outside the command line: a port, a disk, an id that is not there.
    Runtime,
    /// The command line or the config; trying again without a change is useless.
    Usage,
    /// The disk did not confirm a sync. Restart the gate once the disk is in order.
    LedgerStopped,
}

impl FailureKind {
    /// 74 is what `sysexits.h` calls an input/output error.
    const fn exit_code(self) -> u8 {
        match self {
            Self::Runtime => 1,
            Self::Usage => 2,
            Self::LedgerStopped => 74,
        }
    }
}

impl Failure {
    /// Something outside the command line went wrong.
    pub(crate) fn runtime(message: impl ToString) -> Self {
        Self { kind: FailureKind::Runtime, message: message.to_string() }
    }

    /// The command line or the config is wrong.
    pub(crate) fn usage(message: impl ToString) -> Self {
        Self { kind: FailureKind::Usage, message: message.to_string() }
    }

    /// The ledger stopped the process.
    pub(crate) fn ledger_stopped(message: impl ToString) -> Self {
        Self { kind: FailureKind::LedgerStopped, message: message.to_string() }
    }
}

/// A failure with everything that caused it.
pub(crate) fn with_cause(error: &dyn std::error::Error) -> Failure {
    Failure::runtime(with_causes(error))
}

/// Ends the process: says what went wrong on standard error and turns it into an exit code.
pub(crate) fn finish(outcome: Result<(), Failure>) -> ExitCode {
    logs::flush();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            aside(&format!("admit: {}", failure.message));
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

/// Ends the process here and now, without closing anything in good order.
pub(crate) fn exit_at_once(failure: &Failure) -> ! {
    logs::flush();
    aside(&format!("admit: {}", failure.message));
    std::process::exit(i32::from(failure.kind.exit_code()))
}

/// The same where nothing went wrong.
pub(crate) fn exit_in_order() -> ! {
    logs::flush();
    std::process::exit(0)
}

/// Writes `text` to standard output. A reader that went away (`| head`) is no failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes bytes as they are.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::runtime(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes one JSON document and a line end.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::runtime(format!("cannot write JSON: {error}")))?;
    text.push('\n');
    print(&text)
}

/// A line apart from what a command prints: how far long work has come, or what to do with the result.
/// Nobody may be there to read it, which is no reason to fail.
pub(crate) fn aside(line: &str) {
    writeln!(io::stderr(), "{line}").unwrap_or_default();
}

/// A table without lines, so that it reads well and cuts well.
pub(crate) fn table(header: &[&str], rows: impl IntoIterator<Item = Vec<String>>) -> String {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header.to_vec());
    for row in rows {
        table.add_row(row.into_iter().map(|cell| printable(&cell)).collect::<Vec<_>>());
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    let lines: Vec<String> = table.lines().map(|line| line.trim_end().to_owned()).collect();
    format!("{}\n", lines.join("\n"))
}

/// Text that came from outside, without what a terminal would obey.
pub(crate) fn printable(text: &str) -> String {
    text.chars().fold(String::with_capacity(text.len()), |mut shown, c| {
        if c.is_control() {
            shown.extend(c.escape_default())
        } else {
            shown.push(c)
        }
        shown
    })
}

/// A number with its noun: one row, two rows.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_header_and_one_line_a_row() {
        let rows =
            [vec!["a".to_owned(), "long text".to_owned()], vec!["bb".to_owned(), "c".to_owned()]];
        insta::assert_snapshot!(table(&["id", "what"], rows), @r"
        id  what
        a   long text
        bb  c
        ");
    }

    #[test]
    fn text_from_outside_cannot_command_the_terminal() {
        let shown = table(&["x"], [vec!["\u{1b}[2Jgone\r\n".to_owned()]]);
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        assert!(!shown.contains('\r'), "{shown:?}");
        assert_eq!(shown.lines().count(), 2, "{shown:?}");
    }
}
