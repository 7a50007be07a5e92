//! Gates under `strace`: traces of system calls, and injected errors and kills.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;

use super::gate::Gate;
use super::machine::{self, command, text};
use super::{TIMEOUT, wait_for};

/// Trace file of a gate.
pub(crate) struct Trace {
    path: PathBuf,
}

/// Whether strace works on this machine; if not, the test is reported as skipped.
pub(crate) fn is_available() -> bool {
    // Traces look at system calls on the SQLite file.
    if super::sql::skip_on_postgres() {
        return false;
    }
    if !machine::has("strace") {
        machine::skip("strace is not installed");
        return false;
    }
    let status = command("strace")
        .args(["-D", "-f", "-o", "/dev/null", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let works = status.is_ok_and(|status| status.success());
    if !works {
        machine::skip("strace is not permitted to trace");
    }
    works
}

impl Trace {
    /// A trace written to a file in this folder.
    pub(crate) fn into(folder: &Path) -> Self {
        Self { path: folder.join("trace") }
    }

    /// Command prefix that starts a gate under strace with these options. With `-D` the gate is our
    /// direct child, so its exit code is its own.
    pub(crate) fn wrapper(&self, options: &[&str]) -> Vec<String> {
        let fixed = ["strace", "-D", "-f", "-y", "-s", "64", "-o", machine::text(&self.path)];
        fixed.iter().chain(options).map(|word| (*word).to_owned()).collect()
    }

    /// Reads the trace of a gate that has exited.
    pub(crate) fn read(&self) -> String {
        wait_for("exit of the gate in the trace", TIMEOUT, || {
            let text = String::from_utf8_lossy(&fs::read(&self.path).ok()?).into_owned();
            let last = text.lines().last()?;
            (last.contains("+++ exited") || last.contains("+++ killed")).then_some(text)
        })
    }
}

/// A relevant event of a trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TraceStep {
    /// The head of a POST was read from a socket.
    Request,
    /// A sync of the ledger or its WAL returned without an error.
    Synced,
    /// A reply with status 200 is about to be written.
    Reply,
}

/// Parses the steps of a trace, in order. A call that is interrupted by another thread's is on two
/// lines, `name(… <unfinished ...>` and `<... name resumed>…`: a sync counts where it returns, a
/// reply where it begins.
pub(crate) fn parse_steps(trace: &str) -> Vec<TraceStep> {
    let mut syncs = PendingSyncs::default();
    let step = |line: &str| {
        let (thread, call) = line.split_once(' ')?;
        let call = call.trim_start();
        match call_name(call) {
            "fsync" | "fdatasync" => syncs.has_synced(thread, call).then_some(TraceStep::Synced),
            "read" | "readv" | "recvfrom" | "recvmsg" if call.contains("POST /plugin/events") => {
                Some(TraceStep::Request)
            }
            "write" | "writev" | "sendto" | "sendmsg" if call.contains("\"HTTP/1.1 200") => {
                Some(TraceStep::Reply)
            }
            _ => None,
        }
    };
    trace.lines().filter_map(step).collect()
}

/// Returns the line numbers at which a sync of the ledger returned without an error.
pub(crate) fn sync_lines(trace: &str) -> Vec<usize> {
    let mut syncs = PendingSyncs::default();
    let synced = |(at, line): (usize, &str)| {
        let (thread, call) = line.split_once(' ')?;
        let call = call.trim_start();
        let is_sync = matches!(call_name(call), "fsync" | "fdatasync");
        (is_sync && syncs.has_synced(thread, call)).then_some(at)
    };
    trace.lines().enumerate().filter_map(synced).collect()
}

/// Name of the system call on a line, begun or resumed.
fn call_name(call: &str) -> &str {
    let name = call.strip_prefix("<... ").unwrap_or(call);
    &name[..name.find(['(', ' ']).unwrap_or(name.len())]
}

/// Threads with an unfinished sync of the ledger.
#[derive(Default)]
struct PendingSyncs(Vec<String>);

impl PendingSyncs {
    /// Whether a sync of the ledger returned successfully on this line.
    fn has_synced(&mut self, thread: &str, call: &str) -> bool {
        let is_ledger = match call.starts_with("<... ") {
            true => self.0.iter().any(|pending| pending == thread),
            false => call.contains("ledger.db"),
        };
        self.0.retain(|pending| pending != thread);
        if is_ledger && call.ends_with("<unfinished ...>") {
            self.0.push(thread.to_owned());
        }
        is_ledger && call.ends_with("= 0")
    }
}

#[test]
fn a_trace_is_parsed_in_order_even_when_threads_interrupt_each_other() {
    let trace = "\
10 recvfrom(9<socket:[1]>, \"POST /plugin/events HTTP/1.1\\r\\nHo\"..., 8192, 0, NULL, NULL) = 900
11 fdatasync(7</t/ledger.db-wal> <unfinished ...>
10 write(2</t/log>, \"not a reply\", 11) = 11
11 <... fdatasync resumed>)          = 0
10 writev(9<socket:[1]>, [{iov_base=\"HTTP/1.1 200 OK\\r\\ncontent\"..., iov_len=300}], 1 <unfinished ...>
11 fsync(8</t/other>) = 0
10 <... writev resumed>)             = 300
11 fdatasync(7</t/ledger.db-wal>) = -1 EIO (Input/output error) (INJECTED)
11 fsync(7</t/ledger.db-wal>) = 0
11 +++ exited with 0 +++";
    assert_eq!(
        parse_steps(trace),
        [TraceStep::Request, TraceStep::Synced, TraceStep::Reply, TraceStep::Synced]
    );
}

/// Where a gate is killed: at the entry of the `nth` of these system calls on this file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KillPoint {
    pub(crate) calls: &'static str,
    pub(crate) file: &'static str,
    pub(crate) nth: u32,
}

pub(crate) const fn kill_at(calls: &'static str, file: &'static str, nth: u32) -> KillPoint {
    KillPoint { calls, file, nth }
}

/// Attaches strace to a running gate; it sends SIGKILL at the given point. `at.file` is a file of the
/// ledger or of `topic` on the bus.
pub(crate) fn attach_kill(gate: &Gate, at: KillPoint, topic: &str) -> Child {
    let mut strace = command("strace");
    strace.args(["-f", "-p", &gate.pid().to_string(), "-o", "/dev/null"]);
    strace.args(["-e", &format!("trace={}", at.calls)]);
    strace.args(["-e", &format!("inject={}:signal=SIGKILL:when={}", at.calls, at.nth)]);
    if !at.file.is_empty() {
        let folder = if at.file.starts_with("ledger") {
            gate.data().to_owned()
        } else {
            gate.data().join("bus").join(topic)
        };
        strace.args(["-P", text(&folder.join(at.file))]);
    }
    let mut strace = strace.stderr(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(strace.stderr.take().expect("stderr is piped")).lines();
    // strace prints a line for every thread; the first is enough, as it stops all of them together.
    lines
        .find(|line| line.as_ref().is_ok_and(|line| line.contains("attached")))
        .expect("strace attaches")
        .unwrap();
    // Drain the rest: a full pipe would block strace.
    thread::spawn(move || lines.for_each(drop));
    strace
}
