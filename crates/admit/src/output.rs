//! Output and exit codes of commands: tables for people, JSON for programs.

use std::io::{self, Write as _};
use std::process::ExitCode;

use admit_core::with_causes;
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde::Serialize;

use crate::logs;

/// Error of a command, with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    kind: FailureKind,
    message: String,
}

/// Kind of a failure, which determines the exit code for scripts and service managers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FailureKind {
    /// A failure outside the command line: a port, a disk, an id that does not exist.
    Runtime,
    /// Invalid command line or config; a retry without a change fails again.
    Usage,
    /// The disk did not confirm a sync. Check the disk, then restart the gate.
    LedgerStopped,
}

impl FailureKind {
    /// 74 is `EX_IOERR` of `sysexits.h`.
    const fn exit_code(self) -> u8 {
        match self {
            Self::Runtime => 1,
            Self::Usage => 2,
            Self::LedgerStopped => 74,
        }
    }
}

impl Failure {
    /// A failure outside the command line.
    pub(crate) fn runtime(message: impl ToString) -> Self {
        Self { kind: FailureKind::Runtime, message: message.to_string() }
    }

    /// An invalid command line or config.
    pub(crate) fn usage(message: impl ToString) -> Self {
        Self { kind: FailureKind::Usage, message: message.to_string() }
    }

    /// The ledger stopped the process after a failed sync.
    pub(crate) fn ledger_stopped(message: impl ToString) -> Self {
        Self { kind: FailureKind::LedgerStopped, message: message.to_string() }
    }
}

/// A runtime failure with the whole chain of causes.
pub(crate) fn with_cause(error: &dyn std::error::Error) -> Failure {
    Failure::runtime(with_causes(error))
}

/// Returns the exit code of the process, and prints a failure to standard error.
pub(crate) fn finish(outcome: Result<(), Failure>) -> ExitCode {
    logs::flush();
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            print_stderr(&format!("admit: {}", failure.message));
            ExitCode::from(failure.kind.exit_code())
        }
    }
}

/// Exits immediately with a failure, without a clean shutdown.
pub(crate) fn exit_at_once(failure: &Failure) -> ! {
    logs::flush();
    print_stderr(&format!("admit: {}", failure.message));
    std::process::exit(i32::from(failure.kind.exit_code()))
}

/// Exits immediately with code 0, without a clean shutdown.
pub(crate) fn exit_without_cleanup() -> ! {
    logs::flush();
    std::process::exit(0)
}

/// Writes `text` to standard output. A closed pipe (`| head`) is not a failure.
pub(crate) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// Writes bytes to standard output unchanged.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => {
            Err(Failure::runtime(format!("cannot write to standard output: {error}")))
        }
        _ => Ok(()),
    }
}

/// Writes one JSON document and a newline.
pub(crate) fn print_json(value: &impl Serialize) -> Result<(), Failure> {
    let mut text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::runtime(format!("cannot write JSON: {error}")))?;
    text.push('\n');
    print(&text)
}

/// Writes a line to standard error: progress, or advice about the result. Write errors are ignored.
pub(crate) fn print_stderr(line: &str) {
    writeln!(io::stderr(), "{line}").unwrap_or_default();
}

/// A table without borders, readable and easy to process with `cut` or `awk`.
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

/// Escapes control characters of untrusted text, so that it cannot control the terminal.
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

/// A count with its noun in singular or plural: `1 row`, `2 rows`.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_a_header_and_one_line_per_row() {
        let rows =
            [vec!["a".to_owned(), "long text".to_owned()], vec!["bb".to_owned(), "c".to_owned()]];
        insta::assert_snapshot!(table(&["id", "what"], rows), @r"
        id  what
        a   long text
        bb  c
        ");
    }

    #[test]
    fn untrusted_text_cannot_control_the_terminal() {
        let shown = table(&["x"], [vec!["\u{1b}[2Jgone\r\n".to_owned()]]);
        assert!(!shown.contains('\u{1b}'), "{shown:?}");
        assert!(!shown.contains('\r'), "{shown:?}");
        assert_eq!(shown.lines().count(), 2, "{shown:?}");
    }
}
