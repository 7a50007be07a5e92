//! A folder of one's own, the real binary in it, and a gate that is ended when the test is.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::Duration;

use tempfile::TempDir;

/// An event that the `pixel-control` door admits.
pub(crate) const SAMPLE: &str = r#"{"envelope":{"event_name":"pixel_control.lifecycle.maniaplanet_beginmatch","schema_version":"2026-02-19.1","event_id":"pc-evt-lifecycle-maniaplanet_beginmatch-1739980000001","event_category":"lifecycle","source_callback":"ManiaPlanet.BeginMatch","source_sequence":1739980000001,"source_time":1739980000,"idempotency_key":"pc-idem-7a6c3048c4b6e4a2df4f59650e2dc71bdffb3e65","payload":{},"metadata":{}},"transport":{"attempt":1,"max_attempts":3,"retry_backoff_ms":250,"auth_mode":"none"}}"#;

/// Nothing a test waits for takes this long, unless it is broken.
const PATIENCE: Duration = Duration::from_secs(20);

/// The working directory of a test.
pub(crate) struct World {
    folder: TempDir,
}

/// What a command said and how it ended.
pub(crate) struct Said {
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
        std::fs::write(self.path().join(name), text).expect("a temporary folder takes files");
    }

    /// The binary, with none of the caller's own settings.
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

    /// Runs a command to its end.
    pub(crate) fn run(&self, arguments: &[&str]) -> Said {
        Said::of(self.admit(arguments).output().expect("the binary runs"))
    }

    /// Runs a command to its end with a variable set.
    pub(crate) fn run_with(&self, name: &str, value: &str, arguments: &[&str]) -> Said {
        Said::of(self.admit(arguments).env(name, value).output().expect("the binary runs"))
    }

    /// Starts a gate on a free port, in the folder `admit-data`.
    pub(crate) fn serve(&self, arguments: &[&str]) -> Gate {
        let mut command = self.admit(&["serve", "--json", "--listen", "127.0.0.1:0"]);
        command.args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().expect("the binary runs");
        let mut line = String::new();
        let out = child.stdout.take().expect("a pipe was asked for");
        BufReader::new(out).read_line(&mut line).expect("the gate says where it is");
        let Ok(first) = serde_json::from_str::<serde_json::Value>(&line) else {
            let said = Said::of(child.wait_with_output().expect("it can be waited for"));
            panic!("the gate did not open: {line}{}", said.err);
        };
        let address = first["listen"].as_str().and_then(|text| text.parse().ok());
        Gate { child, address: address.expect("an address"), first }
    }
}

impl Said {
    fn of(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("we print UTF-8");
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
    /// What it said first.
    pub(crate) first: serde_json::Value,
}

impl Gate {
    /// Posts a body to a path and returns the status and the body of the answer.
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
        stream.set_read_timeout(Some(PATIENCE)).expect("a timeout");
        stream.write_all(request.as_bytes()).expect("the gate reads");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("the gate answers");
        let status = answer.split(' ').nth(1).and_then(|code| code.parse().ok());
        let (_, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        (status.expect("a status line"), body.to_owned())
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Sends a signal, by name.
    pub(crate) fn signal(&self, name: &str) {
        let pid = self.pid().to_string();
        let sent = Command::new("kill").args(["-s", name, &pid]).status().expect("kill runs");
        assert!(sent.success(), "kill -s {name} {pid}");
    }

    /// Waits for its end.
    pub(crate) fn wait(&mut self) -> ExitStatus {
        self.child.wait().expect("it can be waited for")
    }

    /// What it has logged. Waits for its end.
    pub(crate) fn log(&mut self) -> String {
        let mut log = String::new();
        let mut err = self.child.stderr.take().expect("a pipe was asked for");
        err.read_to_string(&mut log).expect("we log UTF-8");
        log
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            self.child.kill().expect("a gate can be ended");
            self.wait();
        }
    }
}
