//! moto: in-memory S3 and Kinesis emulator in Python.

use std::net::SocketAddr;

use super::{ServerProcess, free_ports, http_status, local, python};

/// Emulator process.
#[derive(Debug)]
pub struct Moto {
    _running: ServerProcess,
    address: SocketAddr,
}

impl Moto {
    /// Starts one; `None`, with a message, if the program is not installed.
    pub fn start() -> Option<Self> {
        let program = python("moto_server")?;
        let [port] = free_ports();
        let running = ServerProcess::start(&program, |command, _| {
            command.args(["-H", "127.0.0.1", "-p", &port.to_string()]);
        });
        let address = local(port);
        let started =
            running.until(|| http_status(address, "GET", "/moto-api/data.json") == Some(200));
        Some(Self { _running: started, address })
    }

    /// Address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Endpoint URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Creates a bucket.
    ///
    /// # Panics
    /// If the server does not create it.
    pub fn bucket(&self, name: &str) {
        let made = http_status(self.address, "PUT", &format!("/{name}"));
        assert_eq!(made, Some(200), "the bucket {name} cannot be made");
    }
}
