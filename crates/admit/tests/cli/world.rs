//! Test environment: a temporary working directory, the real binary, and gates that stop with the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// An event that the `pixel-control` door admits.
pub(crate) const SAMPLE: &str = r#"{"envelope":{"event_name":"pixel_control.lifecycle.maniaplanet_beginmatch","schema_version":"2026-02-19.1","event_id":"pc-evt-lifecycle-maniaplanet_beginmatch-1739980000001","event_category":"lifecycle","source_callback":"ManiaPlanet.BeginMatch","source_sequence":1739980000001,"source_time":1739980000,"idempotency_key":"pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65","payload":{},"metadata":{}},"transport":{"attempt":1,"max_attempts":3,"retry_backoff_ms":250,"auth_mode":"none"}}"#;

/// Timeout of everything that a test waits for.
const TIMEOUT: Duration = Duration::from_secs(20);

/// The working directory of a test.
pub(crate) struct World {
    folder: TempDir,
}

/// Output and exit code of a command.
pub(crate) struct CommandOutput {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { folder: tempfile::tempdir().expect("a temporary folder") }
    }

    pub(crate) fn path(&self) -> &Path {
        self.folder.path()
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path().join(name), text).expect("the temporary folder is writable");
    }

    /// The binary, without the caller's ADMIT_ variables.
    pub(crate) fn admit(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_admit"));
        command.current_dir(self.path()).args(arguments).stdin(Stdio::null());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ADMIT_") {
                command.env_remove(name);
            }
        }
        command
    }

    /// Runs a command and waits for it.
    pub(crate) fn run(&self, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(self.admit(arguments).output().expect("the binary runs"))
    }

    /// Runs a command with an environment variable, and waits for it.
    pub(crate) fn run_with(&self, name: &str, value: &str, arguments: &[&str]) -> CommandOutput {
        CommandOutput::of(self.admit(arguments).env(name, value).output().expect("the binary runs"))
    }

    /// Starts a gate on a free port, in the folder `admit-data`.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Gate {
        let mut command = self.admit(&["serve", "--json", "--listen", "127.0.0.1:0"]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut line = String::new();
        let out = child.stdout.take().expect("standard output is piped");
        BufReader::new(out).read_line(&mut line).expect("the gate prints a line");
        let Ok(first) = serde_json::from_str::<serde_json::Value>(&line) else {
            let ended = CommandOutput::of(child.wait_with_output().expect("the gate ends"));
            panic!("the gate did not open: {line}{}", ended.err);
        };
        let address = first["listen"].as_str().and_then(|text| text.parse().ok());
        Gate { child, address: address.expect("an address"), first }
    }
}

impl CommandOutput {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("output is UTF-8");
        Self { code: output.status.code(), out: text(output.stdout), err: text(output.stderr) }
    }

    /// The one JSON document on standard output.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {}", self.out))
    }
}

/// A running gate.
pub(crate) struct Gate {
    child: Child,
    pub(crate) address: SocketAddr,
    /// JSON banner of the gate.
    pub(crate) first: serde_json::Value,
}

impl Gate {
    /// Posts a body, and returns status and body of the response.
    pub(crate) fn post(&self, path: &str, headers: &str, body: &str) -> (u16, String) {
        let length = body.len();
        self.exchange(&format!(
            "POST {path} HTTP/1.1\r\nHost: {}\r\nContent-Type: application/json\r\n{headers}\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}",
            self.address
        ))
    }

    fn exchange(&self, request: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).expect("the gate listens");
        stream.set_read_timeout(Some(TIMEOUT)).expect("a timeout");
        stream.write_all(request.as_bytes()).expect("the gate reads");
        let mut response = String::new();
        stream.read_to_string(&mut response).expect("the gate responds");
        let status = response.split(' ').nth(1).and_then(|code| code.parse().ok());
        let (_, body) = response.split_once("\r\n\r\n").expect("a head and a body");
        (status.expect("a status line"), body.to_owned())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success(), "kill -s {name} {pid}");
    }

    /// Waits for the process to end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("the gate ends")
    }

    /// Log of the gate. Waits for the process to end.
    pub(crate) fn log(&mut self) -> String {
        let mut log = String::new();
        let mut err = self.child.stderr.take().expect("standard error is piped");
        err.read_to_string(&mut log).expect("the log is UTF-8");
        log
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.child.kill().expect("the gate can be killed");
            self.wait();
        }
    }
}
