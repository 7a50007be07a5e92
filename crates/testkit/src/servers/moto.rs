//! moto: S3 and Kinesis as a Python program imitates them, in memory.

use std::net::SocketAddr;

use super::{Running, ask, free_ports, local, python};

/// A server that has everything in memory.
#[derive(Debug)]
pub struct Moto {
    _running: Running,
    address: SocketAddr,
}

impl Moto {
    /// Starts one; `None`, with a line that says so, where the program is not installed.
    pub fn start() -> Option<Self> {
        let program = python("moto_server")?;
        let [port] = free_ports();
        let running = Running::start(&program, |command, _| {
            command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        });
        let address = local(port);
        let started = running.until(|| ask(address, "GET", "/moto-api/data.json") == Some(200));
        Some(Self { _running: started, address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The same, as an endpoint.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Makes a bucket.
    ///
    /// # Panics
    /// When the server does not make it.
    pub fn bucket(&self, name: &str) {
        let made = ask(self.address, "PUT", &format!("/{name}"));
        assert_eq!(made, Some(200), "the bucket {name} cannot be made");
    }
}
