//! A gate as a process: started on a folder, found by the address it prints, ended by its id.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::http::Client;
use super::{SOON, machine, sql, until};

/// The binary that cargo built for these tests; `ADMIT_TEST_BINARY` names another one, such as that of
/// an earlier version.
fn binary() -> OsString {
    std::env::var_os("ADMIT_TEST_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_admit").into())
}

/// A gate about to be started.
pub(crate) struct Launch {
    data: PathBuf,
    folder: Option<PathBuf>,
    wrapper: Vec<OsString>,
    arguments: Vec<OsString>,
    variables: Vec<(String, String)>,
    /// Where its log goes instead of a file of the test's.
    log_to: Option<Stdio>,
    /// Where its address is printed first.
    address_in: &'static [&'static str],
}

impl Launch {
    /// `admit serve` on the folder `data`, on any free port.
    pub(crate) fn on(data: &Path) -> Self {
        let listen = ["--listen".into(), "127.0.0.1:0".into()];
        let mut launch = Self::bare(data).argument("--data").argument(data);
        launch.arguments.extend(listen);
        for (name, value) in sql::variables(data) {
            launch = launch.variable(name, &value);
        }
        launch
    }

    /// `admit serve` with nothing said; `data` is where the test expects its folder.
    pub(crate) fn bare(data: &Path) -> Self {
        Self {
            data: data.to_owned(),
            folder: None,
            wrapper: Vec::new(),
            arguments: vec!["serve".into()],
            variables: Vec::new(),
            log_to: None,
            address_in: &[STDOUT, STDERR],
        }
    }

    /// `admit edge` on the folder `data`, on any free port, to the gate at `gate`.
    pub(crate) fn edge(data: &Path, gate: SocketAddr) -> Self {
        Self::edge_to(data, &format!("http://{gate}"))
    }

    /// The same to the gate at a URL.
    pub(crate) fn edge_to(data: &Path, gate: &str) -> Self {
        let arguments = ["edge", "--listen", "127.0.0.1:0", "--gate"].map(OsString::from).to_vec();
        // Its log names the gate's address, perhaps before its own is printed.
        Self { arguments, address_in: &[STDOUT], ..Self::bare(data) }
            .argument(gate)
            .argument("--data")
            .argument(data)
    }

    pub(crate) fn argument(mut self, argument: impl Into<OsString>) -> Self {
        self.arguments.push(argument.into());
        self
    }

    pub(crate) fn variable(mut self, name: &str, value: &str) -> Self {
        self.variables.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Has it write its log there.
    pub(crate) fn log_to(mut self, log: impl Into<Stdio>) -> Self {
        self.log_to = Some(log.into());
        self
    }

    /// Starts it in this working directory.
    pub(crate) fn in_folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Has another program start it, which must become it (or leave it our child).
    pub(crate) fn under<S: Into<OsString>>(mut self, wrapper: impl IntoIterator<Item = S>) -> Self {
        self.wrapper = wrapper.into_iter().map(Into::into).collect();
        self
    }

    /// Starts it and waits until it says that it is ready.
    pub(crate) fn start(self) -> Gate {
        self.try_start().unwrap_or_else(|ended| panic!("the gate did not start: {ended:?}"))
    }

    /// Starts it and waits until it says that it is ready, or until it has given up.
    pub(crate) fn try_start(self) -> Result<Gate, Ended> {
        let mut process = self.spawn();
        let found = until("the gate prints its address", SOON, || {
            // In this order: what a gate printed before it ended is still read.
            let has_ended = process.has_ended();
            process.printed_address().map(Some).or(has_ended.then_some(None))
        });
        let Some(address) = found else { return Err(process.ended(SOON)) };
        let mut gate = Gate { process, address };
        until("the gate is ready", SOON, || (gate.is_ready() || !gate.is_running()).then_some(()));
        if gate.is_running() { Ok(gate) } else { Err(gate.ended()) }
    }

    /// Starts it and waits until it prints its address, for a gate that cannot be asked in plain.
    pub(crate) fn start_unasked(self) -> Gate {
        let process = self.spawn();
        let address = until("the gate prints its address", SOON, || process.printed_address());
        Gate { process, address }
    }

    /// Starts it and waits until it has given up.
    pub(crate) fn start_in_vain(self) -> Ended {
        self.spawn().ended(SOON)
    }

    /// Starts it and kills it after a while, however far it has come.
    pub(crate) fn start_and_kill(self, after: Duration) {
        let process = self.spawn();
        thread::sleep(after);
        drop(process);
    }

    fn spawn(self) -> Process {
        let logs = tempfile::tempdir().unwrap();
        let mut words = self.wrapper.into_iter().chain([binary()]).chain(self.arguments);
        let mut command = Command::new(words.next().expect("there is at least the binary"));
        command.args(words);
        unconfigured(&mut command);
        command.envs(self.variables).stdin(Stdio::null());
        command.stdout(File::create(logs.path().join(STDOUT)).unwrap());
        let log = File::create(logs.path().join(STDERR)).unwrap();
        command.stderr(self.log_to.unwrap_or_else(|| log.into()));
        if let Some(folder) = self.folder {
            command.current_dir(folder);
        }
        let child = command.spawn().unwrap();
        Process { child, logs, data: self.data, address_in: self.address_in }
    }
}

/// What configures the tests, or somebody's gate, must not configure this one.
fn unconfigured(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_ours = ["ADMIT_", "WSP_"].iter().any(|prefix| text.starts_with(prefix));
        if is_ours || text == "EXECUTE_ACTIONS" || text == "PLATFORM_RUN_ID" {
            command.env_remove(name);
        }
    }
}

/// `admit` with these words, without anybody's configuration, on the ledger of the folder that comes
/// after `--data`.
pub(crate) fn admit<S: AsRef<OsStr>>(words: impl IntoIterator<Item = S>) -> Command {
    let mut command = machine::command(binary().to_str().expect("a plain path"));
    unconfigured(&mut command);
    let mut is_data = false;
    for word in words {
        if is_data {
            command.envs(sql::variables(Path::new(word.as_ref())));
        }
        is_data = word.as_ref() == "--data";
        command.arg(word);
    }
    command
}

const STDOUT: &str = "stdout";
const STDERR: &str = "stderr";

/// A process that is killed when nobody looks after it any more.
struct Process {
    child: Child,
    logs: TempDir,
    data: PathBuf,
    address_in: &'static [&'static str],
}

impl Process {
    fn log(&self, name: &str) -> String {
        String::from_utf8_lossy(&std::fs::read(self.logs.path().join(name)).unwrap()).into_owned()
    }

    /// The first loopback address with a port on standard output or in the log.
    fn printed_address(&self) -> Option<SocketAddr> {
        const HOST: &str = "127.0.0.1:";
        let text: String = self.address_in.iter().map(|name| self.log(name)).collect();
        text.match_indices(HOST).find_map(|(start, _)| {
            let rest = &text[start + HOST.len()..];
            let end = rest.find(|c: char| !c.is_ascii_digit())?;
            let port = rest[..end].parse().ok().filter(|port| *port != 0)?;
            Some(SocketAddr::from(([127, 0, 0, 1], port)))
        })
    }

    fn has_ended(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn ended(mut self, at_most: Duration) -> Ended {
        let status = until("the gate ends", at_most, || self.child.try_wait().unwrap());
        Ended { status, stdout: self.log(STDOUT), stderr: self.log(STDERR) }
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(None)) {
            self.child.kill().unwrap_or_default();
            self.child.wait().map(drop).unwrap_or_default();
        }
        if thread::panicking() {
            for name in [STDOUT, STDERR] {
                let text = self.log(name);
                let tail: Vec<&str> = text.lines().rev().take(60).collect();
                eprintln!("--- the gate's {name}, its last lines");
                tail.iter().rev().for_each(|line| eprintln!("{line}"));
            }
        }
    }
}

/// A gate that is running.
pub(crate) struct Gate {
    process: Process,
    address: SocketAddr,
}

/// How a gate ended.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Gate {
    /// A gate on `data` with nothing configured.
    pub(crate) fn on(data: &Path) -> Self {
        Launch::on(data).start()
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn data(&self) -> &Path {
        &self.process.data
    }

    pub(crate) fn client(&self) -> Client {
        Client::to(self.address)
    }

    /// What it has printed for people.
    pub(crate) fn stdout(&self) -> String {
        self.process.log(STDOUT)
    }

    /// What it has logged.
    pub(crate) fn stderr(&self) -> String {
        self.process.log(STDERR)
    }

    /// The process itself, for whoever measures it.
    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// What `/readyz` says now; no answer is "no".
    pub(crate) fn is_ready(&self) -> bool {
        self.client().send("GET", "/readyz", &[], b"").is_ok_and(|answer| answer.status == 200)
    }

    /// Whether the process is still there.
    pub(crate) fn is_running(&mut self) -> bool {
        !self.process.has_ended()
    }

    /// Asks it to end, without waiting.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends it a signal, such as `INT`.
    pub(crate) fn signal(&self, name: &str) {
        machine::signal(self.process.child.id(), name);
    }

    /// Asks it to end and waits; it must do so in peace.
    pub(crate) fn stop(self) {
        self.terminate();
        let ended = self.ended();
        assert!(ended.status.success(), "a gate that is asked to end exits with 0: {ended:?}");
    }

    /// Ends it as a power switch would.
    pub(crate) fn kill(mut self) {
        self.process.child.kill().unwrap();
        self.process.child.wait().unwrap();
    }

    /// Waits until it has ended by itself.
    pub(crate) fn ended(self) -> Ended {
        self.process.ended(SOON)
    }
}
