//! Gate processes: started on a data folder, addressed by the port they print, stopped by process id.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use tempfile::TempDir;

use super::http::Client;
use super::{TIMEOUT, machine, sql, wait_for};

/// The binary under test: the one cargo built, or `ADMIT_TEST_BINARY`, such as an earlier version.
pub(crate) fn binary() -> OsString {
    std::env::var_os("ADMIT_TEST_BINARY").unwrap_or_else(|| env!("CARGO_BIN_EXE_admit").into())
}

/// Builder of a gate process.
pub(crate) struct Launch {
    data: PathBuf,
    folder: Option<PathBuf>,
    wrapper: Vec<OsString>,
    arguments: Vec<OsString>,
    variables: Vec<(String, String)>,
    /// Destination of the log; a temporary file by default.
    log_to: Option<Stdio>,
    /// Outputs to search for the listen address.
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

    /// `admit serve` without arguments; `data` is the data folder that the test expects.
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

    /// `admit edge` on the folder `data`, on any free port, for the gate at `gate`.
    pub(crate) fn edge(data: &Path, gate: SocketAddr) -> Self {
        Self::edge_to(data, &format!("http://{gate}"))
    }

    /// [`Self::edge`] for the gate at a URL.
    pub(crate) fn edge_to(data: &Path, gate: &str) -> Self {
        let arguments = ["edge", "--listen", "127.0.0.1:0", "--gate"].map(OsString::from).to_vec();
        // The log contains the gate's address, possibly before the agent prints its own.
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

    /// Sends the log (standard error) to `log`.
    pub(crate) fn log_to(mut self, log: impl Into<Stdio>) -> Self {
        self.log_to = Some(log.into());
        self
    }

    /// Sets the working directory.
    pub(crate) fn in_folder(mut self, folder: &Path) -> Self {
        self.folder = Some(folder.to_owned());
        self
    }

    /// Starts the gate through a wrapper command, which must leave the gate our child process.
    pub(crate) fn under<S: Into<OsString>>(mut self, wrapper: impl IntoIterator<Item = S>) -> Self {
        self.wrapper = wrapper.into_iter().map(Into::into).collect();
        self
    }

    /// Starts the gate and waits until it is ready.
    pub(crate) fn start(self) -> Gate {
        self.try_start().unwrap_or_else(|exit| panic!("the gate did not start: {exit:?}"))
    }

    /// Starts the gate and waits until it is ready; an exit before that is an error.
    pub(crate) fn try_start(self) -> Result<Gate, GateExit> {
        let mut process = self.spawn();
        let found = wait_for("the gate prints its address", TIMEOUT, || {
            // In this order, so that an address printed just before an exit is still found.
            let has_exited = process.has_exited();
            process.printed_address().map(Some).or(has_exited.then_some(None))
        });
        let Some(address) = found else { return Err(process.wait_for_exit(TIMEOUT)) };
        let mut gate = Gate { process, address };
        wait_for("the gate is ready", TIMEOUT, || {
            (gate.is_ready() || !gate.is_running()).then_some(())
        });
        if gate.is_running() { Ok(gate) } else { Err(gate.wait_for_exit()) }
    }

    /// Starts the gate and waits only for its address: `/readyz` cannot be probed without TLS.
    pub(crate) fn start_without_probe(self) -> Gate {
        let process = self.spawn();
        let address =
            wait_for("the gate prints its address", TIMEOUT, || process.printed_address());
        Gate { process, address }
    }

    /// Starts a gate that must fail to start; waits for its exit.
    pub(crate) fn start_expecting_exit(self) -> GateExit {
        self.spawn().wait_for_exit(TIMEOUT)
    }

    /// Starts the gate and kills it `after` this time, ready or not.
    pub(crate) fn start_and_kill(self, after: Duration) {
        let process = self.spawn();
        thread::sleep(after);
        drop(process);
    }

    fn spawn(self) -> Process {
        let logs = tempfile::tempdir().unwrap();
        let mut arguments = self.wrapper.into_iter().chain([binary()]).chain(self.arguments);
        let mut command = Command::new(arguments.next().expect("there is at least the binary"));
        command.args(arguments);
        clear_environment(&mut command);
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

/// Removes variables that configure a gate: those of the developer's shell must not affect tests.
fn clear_environment(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        let is_ours = ["ADMIT_", "WSP_"].iter().any(|prefix| text.starts_with(prefix));
        if is_ours || text == "EXECUTE_ACTIONS" || text == "PLATFORM_RUN_ID" {
            command.env_remove(name);
        }
    }
}

/// A program with a cleared environment.
pub(crate) fn command(program: &str) -> Command {
    let mut command = machine::command(program);
    clear_environment(&mut command);
    command
}

/// The command `admit` with these arguments and a cleared environment, on the ledger of the folder after
/// `--data`.
pub(crate) fn admit<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = command(binary().to_str().expect("a plain path"));
    let mut is_data = false;
    for word in arguments {
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

/// A child process; killed when dropped. Prints its last log lines if the test panics.
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

    fn has_exited(&mut self) -> bool {
        self.child.try_wait().unwrap().is_some()
    }

    fn wait_for_exit(mut self, at_most: Duration) -> GateExit {
        let status = wait_for("exit of the gate", at_most, || self.child.try_wait().unwrap());
        GateExit { status, stdout: self.log(STDOUT), stderr: self.log(STDERR) }
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
                eprintln!("--- last lines of the gate's {name}");
                tail.iter().rev().for_each(|line| eprintln!("{line}"));
            }
        }
    }
}

/// A running gate.
pub(crate) struct Gate {
    process: Process,
    address: SocketAddr,
}

/// Exit status and output of a gate.
#[derive(Debug)]
pub(crate) struct GateExit {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Gate {
    /// Starts a gate on `data` with the default config.
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

    /// Standard output so far.
    pub(crate) fn stdout(&self) -> String {
        self.process.log(STDOUT)
    }

    /// Standard error (the log) so far.
    pub(crate) fn stderr(&self) -> String {
        self.process.log(STDERR)
    }

    /// Process id.
    pub(crate) fn pid(&self) -> u32 {
        self.process.child.id()
    }

    /// Whether `/readyz` returns 200; no reply counts as not ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.client().send("GET", "/readyz", &[], b"").is_ok_and(|response| response.status == 200)
    }

    /// Whether the process is still running.
    pub(crate) fn is_running(&mut self) -> bool {
        !self.process.has_exited()
    }

    /// Sends SIGTERM, without waiting.
    pub(crate) fn terminate(&self) {
        self.signal("TERM");
    }

    /// Sends a signal, such as `INT`.
    pub(crate) fn signal(&self, name: &str) {
        machine::signal(self.process.child.id(), name);
    }

    /// Sends SIGTERM and waits for a clean exit.
    pub(crate) fn stop(self) {
        self.terminate();
        let exit = self.wait_for_exit();
        assert!(exit.status.success(), "exit code after SIGTERM is not 0: {exit:?}");
    }

    /// Sends SIGKILL and waits.
    pub(crate) fn kill(mut self) {
        self.process.child.kill().unwrap();
        self.process.child.wait().unwrap();
    }

    /// Waits until the process exits by itself.
    pub(crate) fn wait_for_exit(self) -> GateExit {
        self.process.wait_for_exit(TIMEOUT)
    }
}
