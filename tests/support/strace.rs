//! The gate under `strace`: what it asks of the system, and errors put into what it asks.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};
use std::thread;

use super::gate::Gate;
use super::machine::{self, Need, command, text};
use super::{SOON, until};

/// A file that a traced gate fills.
pub(crate) struct Trace {
    path: PathBuf,
}

/// Whether strace works here; says that the test is skipped if not.
pub(crate) fn is_there() -> bool {
    // What is traced is what a gate does to its own file.
    if super::sql::is_about_sqlite() {
        return false;
    }
    if !machine::has("strace") {
        machine::skip(Need::Strace, "there is no strace on this machine");
        return false;
    }
    let tried = command("strace")
        .args(["-D", "-f", "-o", "/dev/null", "true"])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let works = tried.is_ok_and(|status| status.success());
    if !works {
        machine::skip(Need::Strace, "this machine does not let strace trace");
    }
    works
}

impl Trace {
    /// A trace into a file of this folder.
    pub(crate) fn into(folder: &Path) -> Self {
        Self { path: folder.join("trace") }
    }

    /// The command that starts a gate under strace with these options. With `-D` the gate itself
    /// stays our child, so that its end and its exit code are its own.
    pub(crate) fn wrapper(&self, options: &[&str]) -> Vec<String> {
        let fixed = ["strace", "-D", "-f", "-y", "-s", "64", "-o", machine::text(&self.path)];
        fixed.iter().chain(options).map(|word| (*word).to_owned()).collect()
    }

    /// The whole trace of a gate that has ended.
    pub(crate) fn read(&self) -> String {
        until("strace writes down the end of the gate", SOON, || {
            let text = String::from_utf8_lossy(&fs::read(&self.path).ok()?).into_owned();
            let last = text.lines().last()?;
            (last.contains("+++ exited") || last.contains("+++ killed")).then_some(text)
        })
    }
}

/// What matters of a trace, in the order in which it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The head of a post was read from a socket.
    Request,
    /// A sync of the ledger or its log returned without an error.
    Synced,
    /// A reply that says 200 is about to be written.
    Reply,
}

/// Reads the steps out of a trace. A call that is interrupted by another thread's stands on two
/// lines, `name(… <unfinished ...>` and `<... name resumed>…`: a sync counts where it returns, a
/// reply where it begins.
pub(crate) fn steps(trace: &str) -> Vec<Step> {
    let mut syncs = Syncs::default();
    let step = |line: &str| {
        let (thread, call) = line.split_once(' ')?;
        let call = call.trim_start();
        match name(call) {
            "fsync" | "fdatasync" => syncs.has_synced(thread, call).then_some(Step::Synced),
            "read" | "readv" | "recvfrom" | "recvmsg" if call.contains("POST /plugin/events") => {
                Some(Step::Request)
            }
            "write" | "writev" | "sendto" | "sendmsg" if call.contains("\"HTTP/1.1 200") => {
                Some(Step::Reply)
            }
            _ => None,
        }
    };
    trace.lines().filter_map(step).collect()
}

/// The lines of a trace, by their numbers, at which a sync of the ledger returned without an error.
pub(crate) fn synced_at(trace: &str) -> Vec<usize> {
    let mut syncs = Syncs::default();
    let synced = |(at, line): (usize, &str)| {
        let (thread, call) = line.split_once(' ')?;
        let call = call.trim_start();
        let is_sync = matches!(name(call), "fsync" | "fdatasync");
        (is_sync && syncs.has_synced(thread, call)).then_some(at)
    };
    trace.lines().enumerate().filter_map(synced).collect()
}

/// The name of a call, whether it begins or is resumed.
fn name(call: &str) -> &str {
    let name = call.strip_prefix("<... ").unwrap_or(call);
    &name[..name.find(['(', ' ']).unwrap_or(name.len())]
}

/// Threads whose unfinished sync is one of the ledger's.
#[derive(Default)]
struct Syncs(Vec<String>);

impl Syncs {
    /// Whether a sync of the ledger has returned with this line.
    fn has_synced(&mut self, thread: &str, call: &str) -> bool {
        let is_ledger = match call.starts_with("<... ") {
            true => self.0.iter().any(|one| one == thread),
            false => call.contains("ledger.db"),
        };
        self.0.retain(|one| one != thread);
        if is_ledger && call.ends_with("<unfinished ...>") {
            self.0.push(thread.to_owned());
        }
        is_ledger && call.ends_with("= 0")
    }
}

#[test]
fn a_trace_is_read_in_order_also_where_threads_interrupt_each_other() {
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
    assert_eq!(steps(trace), [Step::Request, Step::Synced, Step::Reply, Step::Synced]);
}

/// Where a gate is killed: at the entry of the `nth` call of this kind about this file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Point {
    pub(crate) calls: &'static str,
    pub(crate) file: &'static str,
    pub(crate) nth: u32,
}

pub(crate) const fn point(calls: &'static str, file: &'static str, nth: u32) -> Point {
    Point { calls, file, nth }
}

/// strace on a running gate, with a kill in waiting. Files are those of the ledger, or of `topic`.
pub(crate) fn lie_in_wait(gate: &Gate, at: Point, topic: &str) -> Child {
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
    let mut said = BufReader::new(strace.stderr.take().expect("it is piped")).lines();
    // It says so for every thread; the main one is first, and all are stopped at once.
    said.find(|line| line.as_ref().is_ok_and(|line| line.contains("attached")))
        .expect("strace attaches")
        .unwrap();
    // Nobody reads the rest, and a full pipe would stop it.
    thread::spawn(move || said.for_each(drop));
    strace
}
