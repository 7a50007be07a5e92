//! SeaweedFS object store with S3 API.

use std::fs;
use std::net::SocketAddr;

use super::{ServerProcess, free_ports, http_status, local, python};

/// Access control of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum S3Access {
    /// All requests, signed or not.
    Public,
    /// Requests signed with [`Seaweed::ACCESS_KEY`] and [`Seaweed::SECRET_KEY`].
    KeyHolders,
}

/// Server with one volume and no replicas.
#[derive(Debug)]
pub struct Seaweed {
    _running: ServerProcess,
    s3: SocketAddr,
    filer: SocketAddr,
}

impl Seaweed {
    /// Access key.
    pub const ACCESS_KEY: &str = "suite-access-key";
    /// Secret key.
    pub const SECRET_KEY: &str = "suite-secret-key-that-is-never-logged";

    /// Starts one; `None`, with a message, if the program is not installed.
    pub fn start(who: S3Access) -> Option<Self> {
        let program = python("weed")?;
        let ports: [u16; 8] = free_ports();
        let [master, master_grpc, volume, volume_grpc, filer, filer_grpc, s3, s3_grpc] = ports;
        let running = ServerProcess::start(&program, |command, folder| {
            let data = folder.join("data");
            fs::create_dir(&data).expect("a folder");
            command.args(["server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1"]);
            command.arg(format!("-dir={}", data.display()));
            command.args(["-volume.max=8", "-master.volumeSizeLimitMB=64"]);
            command.args(["-master.telemetry=false", "-filer", "-s3"]);
            command.args(["-s3.port.iceberg=0", "-s3.port.lance=0", "-filer.disableDirListing"]);
            for (name, port) in [
                ("master.port", master),
                ("master.port.grpc", master_grpc),
                ("volume.port", volume),
                ("volume.port.grpc", volume_grpc),
                ("filer.port", filer),
                ("filer.port.grpc", filer_grpc),
                ("s3.port", s3),
                ("s3.port.grpc", s3_grpc),
            ] {
                command.arg(format!("-{name}={port}"));
            }
            if who == S3Access::KeyHolders {
                let keys = folder.join("keys.json");
                fs::write(&keys, Self::keys()).expect("a file");
                command.arg(format!("-s3.config={}", keys.display()));
            }
        });
        let (s3, filer) = (local(s3), local(filer));
        let started =
            running.until(|| http_status(s3, "GET", "/status").is_some_and(|status| status < 500));
        let server = Self { _running: started, s3, filer };
        // A volume starts later: the first bucket shows that everything is up.
        server.bucket("ready-now");
        Some(server)
    }

    fn keys() -> String {
        format!(
            r#"{{"identities":[{{"name":"suite","credentials":[{{"accessKey":"{}","secretKey":"{}"}}],"actions":["Admin","Read","Write","List"]}}]}}"#,
            Self::ACCESS_KEY,
            Self::SECRET_KEY
        )
    }

    /// Address of the S3 API.
    pub fn address(&self) -> SocketAddr {
        self.s3
    }

    /// Endpoint URL.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.s3)
    }

    /// Creates a bucket, independent of access control.
    ///
    /// # Panics
    /// If the server does not create it.
    pub fn bucket(&self, name: &str) {
        let made = || http_status(self.filer, "POST", &format!("/buckets/{name}/"));
        let begun = std::time::Instant::now();
        while made().is_none_or(|status| status >= 300) {
            assert!(begun.elapsed() < super::START_MAX, "the bucket {name} cannot be made");
            std::thread::sleep(super::POLL_INTERVAL);
        }
    }
}
