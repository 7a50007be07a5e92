//! nats-server that can be killed and restarted on its data.

use std::fs;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;

use super::{ServerProcess, free_ports, local, python};

/// Server with JetStream on disk.
#[derive(Debug)]
pub struct Nats {
    program: PathBuf,
    data: tempfile::TempDir,
    running: Option<ServerProcess>,
    address: SocketAddr,
    monitor: SocketAddr,
}

impl Nats {
    /// Starts one that syncs before it acknowledges; `None`, with a message, if the program is not
    /// installed.
    pub fn start() -> Option<Self> {
        Self::with("jetstream { store_dir: \"STORE\", sync_interval: always }")
    }

    /// Starts one with these config lines; `STORE` is replaced by its folder.
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

    /// Restarts it on the same address and data.
    pub fn restart(&mut self) {
        self.kill();
        let config = self.data.path().join("nats.conf");
        let running = ServerProcess::start(&self.program, |command, _| {
            command.arg("-c").arg(config);
        });
        let address = self.address;
        self.running = Some(running.until(|| TcpStream::connect(address).is_ok()));
    }

    /// Kills it, like `kill -9`.
    pub fn kill(&mut self) {
        self.running = None;
    }

    /// Address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Bus URL.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address)
    }

    /// Address of its monitoring endpoint.
    pub fn monitor(&self) -> String {
        format!("http://{}", self.monitor)
    }
}
