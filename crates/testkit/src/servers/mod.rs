//! Real servers started by tests: on loopback, on their own ports and folders, stopped by process
//! id at the end of the test.
//!
//! A server that is not installed skips the test ([`skip`]).

mod kinesis_local;
mod moto;
mod nats;
mod seaweed;

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::skip::skip;

pub use kinesis_local::KinesisLocal;
pub use moto::Moto;
pub use nats::Nats;
pub use seaweed::{S3Access, Seaweed};

/// Timeout for the start of a server.
const START_MAX: Duration = Duration::from_secs(60);
/// Poll interval.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Server process with its folder, stopped on drop.
#[derive(Debug)]
struct ServerProcess {
    child: Child,
    folder: tempfile::TempDir,
}

impl ServerProcess {
    /// Starts a program in its own folder; `command` gets the folder.
    fn start(program: &Path, command: impl FnOnce(&mut Command, &Path)) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        let log = std::fs::File::create(folder.path().join("log")).expect("a log");
        let errors = log.try_clone().expect("a log");
        let mut started = Command::new(program);
        started.current_dir(folder.path()).stdin(Stdio::null()).stdout(log).stderr(errors);
        command(&mut started, folder.path());
        let child = started.spawn().expect("a program that was found starts");
        Self { child, folder }
    }

    /// Waits until `is_ready` returns `true`.
    fn until(mut self, is_ready: impl Fn() -> bool) -> Self {
        let begun = Instant::now();
        while !is_ready() {
            let ended = self.child.try_wait().expect("it is ours");
            let log = || std::fs::read_to_string(self.folder.path().join("log"));
            assert!(ended.is_none(), "the server ended: {ended:?}\n{}", log().unwrap_or_default());
            assert!(
                begun.elapsed() < START_MAX,
                "the server does not answer\n{}",
                log().unwrap_or_default()
            );
            thread::sleep(POLL_INTERVAL);
        }
        self
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        // It may have exited already.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Distinct free ports.
fn free_ports<const N: usize>() -> [u16; N] {
    let held: [TcpListener; N] =
        std::array::from_fn(|_| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port"));
    held.map(|listener| listener.local_addr().expect("it is bound").port())
}

fn local(port: u16) -> SocketAddr {
    (Ipv4Addr::LOCALHOST, port).into()
}

/// Sends a request without a body and returns the status; `None` without a response.
fn http_status(address: SocketAddr, method: &str, path: &str) -> Option<u16> {
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(1)).ok()?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: {address}\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).ok()?;
    let mut answer = [0; 12];
    stream.read_exact(&mut answer).ok()?;
    std::str::from_utf8(&answer[9..]).ok()?.parse().ok()
}

/// Folder of `cargo xtask setup` in the user's cache.
fn cache(folder: &str) -> Option<PathBuf> {
    let named = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = match named("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(named("HOME")?).join(".cache"),
    };
    Some(cache.join("admit").join(folder))
}

/// Program of the Python environment; reports the skip if it is missing.
fn python(name: &str) -> Option<PathBuf> {
    let program = cache("python").map(|folder| folder.join("bin").join(name));
    let found = program.filter(|path| path.is_file());
    if found.is_none() {
        skip(&format!("{name} is not installed; `cargo xtask setup` installs it"));
    }
    found
}
