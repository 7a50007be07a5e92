//! A Prometheus server that scrapes a gate, and its tool `promtool`.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;

use super::machine::{self, command, run, text};
use super::{TIMEOUT, pages, wait_for};

/// Path of a file below `deploy/`.
pub(crate) fn deployed(name: &str) -> PathBuf {
    pages::root().join("deploy").join(name)
}

/// Whether Prometheus is installed; if not, the test is reported as skipped.
pub(crate) fn is_installed() -> bool {
    let missing = ["prometheus", "promtool"].into_iter().find(|program| !machine::has(program));
    if let Some(program) = missing {
        machine::skip(&format!("{program} is not installed"));
    }
    missing.is_none()
}

/// Prometheus with the alert rules and the scrape job `admit`; killed when dropped.
pub(crate) struct Prometheus {
    process: Child,
    folder: TempDir,
    address: String,
}

impl Prometheus {
    /// Starts a server that scrapes `gate` and itself every half second.
    pub(crate) fn scraping(gate: SocketAddr) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        // JSON is YAML.
        let config = json!({
            "global": { "scrape_interval": "500ms", "evaluation_interval": "500ms" },
            "rule_files": [deployed("prometheus/alert-rules.yaml")],
            "scrape_configs": [
                { "job_name": "admit", "static_configs": [{ "targets": [gate.to_string()] }] },
                { "job_name": "prometheus", "file_sd_configs": [{ "files": [at("own.json")] }] },
            ],
        });
        fs::write(at("prometheus.yaml"), config.to_string()).unwrap();
        let process = command("prometheus")
            .arg(format!("--config.file={}", text(&at("prometheus.yaml"))))
            .arg(format!("--storage.tsdb.path={}", text(&at("data"))))
            .arg("--web.listen-address=127.0.0.1:0")
            .stdout(Stdio::null())
            .stderr(File::create(at("log")).unwrap())
            .spawn()
            .unwrap();
        let mut server = Self { process, folder, address: String::new() };
        server.address = wait_for("Prometheus logs its address", TIMEOUT, || {
            assert!(server.process.try_wait().unwrap().is_none(), "{}", server.log());
            let log = server.log();
            let line = log.lines().find(|line| line.contains("\"Listening on\""))?;
            line.rsplit_once("address=").map(|(_, address)| address.trim().to_owned())
        });
        // The server reads this file whenever it changes.
        let own = json!([{ "targets": [server.address] }]);
        fs::write(server.folder.path().join("own.json"), own.to_string()).unwrap();
        wait_for("Prometheus has scraped the gate", TIMEOUT, || {
            server.query(r#"up{job="admit"} == 1"#).ok()?.pop()
        });
        server
    }

    /// Samples of an instant query, or the message of its error.
    pub(crate) fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let server = format!("http://{}", self.address);
        let output = run("promtool", ["query", "instant", "--format=json", &server, expression])?;
        serde_json::from_str(&output).map_err(|error| format!("{expression}: {error}: {output}"))
    }

    fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap()
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        self.process.kill().unwrap_or_default();
        self.process.wait().map(drop).unwrap_or_default();
    }
}

/// Runs the tests of a rules file with `promtool`.
pub(crate) fn test_rules(tests: &Path) -> Result<String, String> {
    run("promtool", ["test", "rules", text(tests)])
}
