//! kinesis-local: in-memory Kinesis emulator in Node.js, closer to the original than moto.

use std::net::SocketAddr;
use std::path::PathBuf;

use super::{ServerProcess, cache, free_ports, local, skip};

/// Wrapper script that makes the program listen on loopback; it has no setting for that.
const LOOPBACK_WRAPPER: &str = "\
const { Server } = require('net');
const listen = Server.prototype.listen;
Server.prototype.listen = function (where, ...rest) {
  if (where !== null && typeof where === 'object') {
    return listen.call(this, { ...where, host: '127.0.0.1' }, ...rest);
  }
  const more = typeof rest[0] === 'string' ? rest.slice(1) : rest;
  return listen.call(this, where, '127.0.0.1', ...more);
};
";

/// Emulator process.
#[derive(Debug)]
pub struct KinesisLocal {
    _running: ServerProcess,
    address: SocketAddr,
}

impl KinesisLocal {
    /// Starts one; `None`, with a message, if the program is not installed.
    pub fn start() -> Option<Self> {
        let package = cache("node")?.join("node_modules").join("kinesis-local");
        let path = std::env::var_os("PATH").unwrap_or_default();
        let node: Option<PathBuf> =
            std::env::split_paths(&path).map(|folder| folder.join("node")).find(|p| p.is_file());
        let (Some(node), true) = (node, package.join("main.js").is_file()) else {
            skip("kinesis-local is not installed; `cargo xtask setup` installs it");
            return None;
        };
        let [plain, tls] = free_ports();
        let running = ServerProcess::start(&node, |command, folder| {
            let wrapper = folder.join("wrapper.js");
            std::fs::write(&wrapper, LOOPBACK_WRAPPER).expect("a file");
            command.current_dir(&package).arg("--require").arg(wrapper).arg("main.js");
            command.env("KINESIS_MOCK_PLAIN_PORT", plain.to_string());
            command.env("KINESIS_MOCK_TLS_PORT", tls.to_string());
            command.env("LOG_LEVEL", "ERROR").env("SHARD_LIMIT", "500");
            // No artificial delays: tests wait for conditions, not for time.
            for delay in ["CREATE_STREAM", "DELETE_STREAM", "MERGE_SHARDS", "SPLIT_SHARD"] {
                command.env(format!("{delay}_DURATION"), "5ms");
            }
        });
        let address = local(plain);
        let connects = || std::net::TcpStream::connect(address).is_ok();
        Some(Self { _running: running.until(connects), address })
    }

    /// Address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
