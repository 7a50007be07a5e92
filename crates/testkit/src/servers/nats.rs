//! nats-server: the real thing, which can be killed and started again on what it kept.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use super::{Running, free_ports, local, python};

/// A server with JetStream on disk.
#[derive(Debug)]
pub struct Nats {
    program: PathBuf,
    data: tempfile::TempDir,
    running: Option<Running>,
    address: SocketAddr,
    monitor: SocketAddr,
}

impl Nats {
    /// Starts one that syncs before it acknowledges; `None`, with a line that says so, where the
    /// program is not installed.
    pub fn start() -> Option<Self> {
        Self::with("jetstream { store_dir: \"STORE\", sync_interval: always }")
    }

    /// Starts one with these lines in its config; `STORE` is replaced by a folder of its own.
    pub fn with(config: &str) -> Option<Self> {
        let program = python("nats-server")?;
        let data = tempfile::tempdir().expect("a temporary folder");
        let [port, monitor] = free_ports();
        let (address, monitor) = (local(port), local(monitor));
        let config = config.replace("STORE", &data.path().join("store").to_string_lossy());
        let config = format!("listen: \"{address}\"\nhttp: \"{monitor}\"\n{config}\n");
        fs::write(data.path().join("nats.conf"), config).expect("a file");
        let mut server = Self { program, data, running: None, address, monitor };
        server.restart();
        Some(server)
    }

    /// Starts it again where it was, on what it kept.
    pub fn restart(&mut self) {
        self.kill();
        let config = self.data.path().join("nats.conf");
        let running = Running::start(&self.program, |command, _| {
            command.arg("-c").arg(config);
        });
        let address = self.address;
        self.running = Some(running.until(|| TcpStream::connect(address).is_ok()));
    }

    /// Ends it at once, as `kill -9` does.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same, as the URL of a bus.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Where it tells about itself.
    pub fn monitor(&self) -> String {
        format!("http://{}", self.monitor)
    }
}
