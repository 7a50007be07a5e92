//! First-party clients of `clients/`: their unit tests, the conformance kit, and the real gate.

use std::path::{Path, PathBuf};

use crate::support::gate::{self, Gate};
use crate::support::machine::{has, skip, text};
use crate::support::pages::{blocks, root};
use crate::support::{sql, strace};

/// How a client is tested.
struct ClientSuite {
    /// Folder below `clients`.
    folder: &'static str,
    /// Programs that must be installed.
    programs: &'static [&'static str],
    /// Command of the unit tests, run in the folder.
    unit_tests: &'static [&'static str],
    /// Command that builds the driver into the folder that follows; empty if nothing is built.
    build: &'static [&'static str],
    /// Command of the driver; the last word is a file of the folder, or of what was built.
    driver: &'static [&'static str],
}

const PYTHON: ClientSuite = ClientSuite {
    folder: "python",
    programs: &[],
    unit_tests: &["python3", "-B", "-m", "unittest", "discover", "-s", "tests"],
    build: &[],
    driver: &["python3", "-B", "conformance_driver.py"],
};

const JAVASCRIPT: ClientSuite = ClientSuite {
    folder: "javascript",
    programs: &["node"],
    unit_tests: &["node", "--test", "test/wire.test.js"],
    build: &[],
    driver: &["node", "conformance-driver.js"],
};

const GO: ClientSuite = ClientSuite {
    folder: "go",
    programs: &["go"],
    unit_tests: &["go", "test", "-count=1", "./..."],
    build: &["go", "build", "-buildvcs=false", "-o"],
    driver: &["conformance-driver"],
};

const PHP: ClientSuite = ClientSuite {
    folder: "php",
    programs: &["php"],
    unit_tests: &["php", "tests/run.php"],
    build: &[],
    driver: &["php", "conformance_driver.php"],
};

impl ClientSuite {
    fn path(&self) -> PathBuf {
        root().join("clients").join(self.folder)
    }

    /// Whether the language is installed; reported as skipped if not.
    fn can_run(&self) -> bool {
        let missing = self.programs.iter().find(|program| !has(program));
        if let Some(program) = missing {
            skip(&format!("{program} is not installed; `cargo xtask setup` installs it"));
            return false;
        }
        if self.folder == "php" {
            let check = ["-r", "exit(extension_loaded('curl') ? 0 : 1);"];
            let has_curl = gate::command("php").args(check).status().unwrap().success();
            if !has_curl {
                skip("PHP's curl extension is not installed; `cargo xtask setup` installs it");
            }
            return has_curl;
        }
        true
    }

    fn passes_its_unit_tests(&self) {
        if self.can_run() {
            run(self.unit_tests, &self.path());
        }
    }

    /// Runs a program of the kit with the client's driver; returns what it prints.
    fn kit(&self, program: &str) -> Option<String> {
        if !self.can_run() {
            return None;
        }
        let built = tempfile::tempdir().unwrap();
        let (file, command) = self.driver.split_last().unwrap();
        let mut driver = self.path().join(file);
        if !self.build.is_empty() {
            driver = built.path().join(file);
            let package = format!("./cmd/{file}");
            run(&[self.build, &[text(&driver), &package]].concat(), &self.path());
        }
        let kit = root().join("clients/conformance").join(program);
        let start = ["python3", "-B", text(&kit), "--"];
        Some(run(&[&start, command, &[text(&driver)]].concat(), built.path()))
    }

    fn conforms(&self) {
        if let Some(printed) = self.kit("run.py") {
            assert!(printed.contains(" 0 failed"), "{printed}");
        }
    }

    fn syncs_before_emit_returns(&self) {
        if strace::is_available()
            && let Some(printed) = self.kit("synced.py")
        {
            assert_eq!(printed.trim(), "ok");
        }
    }

    fn works_with_the_real_gate(&self) {
        if sql::skip_on_postgres() {
            return;
        }
        if let Some(printed) = self.kit("real_gate.py") {
            assert_eq!(printed.trim(), "ok");
        }
    }
}

/// Runs a command; returns its standard output.
fn run(words: &[&str], folder: &Path) -> String {
    let (program, arguments) = words.split_first().unwrap();
    let mut command = gate::command(program);
    command.args(arguments).current_dir(folder).env("ADMIT_TEST_BINARY", gate::binary());
    let output = command.output().unwrap();
    let stdout = String::from_utf8_lossy(&output.stdout).into_owned();
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{}: {stdout}{stderr}", words.join(" "));
    stdout
}

/// The example of `docs/clients.md` in a language, for the gate at an address.
fn example(language: &str, gate: &Gate) -> String {
    let all = blocks("docs/clients.md");
    let block = all.iter().find(|block| block.language == language);
    block.unwrap().text.replace("127.0.0.1:8080", &gate.address().to_string())
}

/// Runs an example with `words`, in a folder of its own; it must print that its event is accepted.
fn is_accepted(
    client: &ClientSuite,
    language: &str,
    words: &[&str],
    change: impl Fn(String) -> String,
) {
    if !client.can_run() {
        return;
    }
    let data = tempfile::tempdir().unwrap();
    let folder = tempfile::tempdir().unwrap();
    let gate = Gate::on(data.path());
    let file = folder.path().join("example.mjs");
    std::fs::write(&file, change(example(language, &gate))).unwrap();
    let printed = run(&[words, &[text(&file)]].concat(), folder.path());
    assert!(printed.to_lowercase().contains("accepted"), "{printed}");
    gate.stop();
}

#[test]
fn the_python_client_passes_its_unit_tests() {
    PYTHON.passes_its_unit_tests();
}

#[test]
fn the_python_client_conforms_to_the_specification() {
    PYTHON.conforms();
}

#[test]
fn the_python_client_syncs_an_event_before_emit_returns() {
    PYTHON.syncs_before_emit_returns();
}

#[test]
fn the_python_client_works_with_the_real_gate() {
    PYTHON.works_with_the_real_gate();
}

#[test]
fn the_python_example_of_the_page_sends_an_event() {
    let source = PYTHON.path().join("src");
    let path = format!("import sys; sys.path.insert(0, {:?})\n", text(&source));
    is_accepted(&PYTHON, "python", &["python3", "-B"], |example| format!("{path}{example}"));
}

#[test]
fn the_javascript_client_passes_its_unit_tests() {
    JAVASCRIPT.passes_its_unit_tests();
}

#[test]
fn the_javascript_client_conforms_to_the_specification() {
    JAVASCRIPT.conforms();
}

#[test]
fn the_javascript_client_syncs_an_event_before_emit_returns() {
    JAVASCRIPT.syncs_before_emit_returns();
}

#[test]
fn the_javascript_client_works_with_the_real_gate() {
    JAVASCRIPT.works_with_the_real_gate();
}

#[test]
fn the_javascript_example_of_the_page_sends_an_event() {
    let source = JAVASCRIPT.path().join("src/index.js");
    let package = format!("'{}'", text(&source));
    is_accepted(&JAVASCRIPT, "js", &["node"], |example| {
        example.replace("'admit-client'", &package)
    });
}

#[test]
fn the_go_client_passes_its_unit_tests() {
    GO.passes_its_unit_tests();
}

#[test]
fn the_go_client_conforms_to_the_specification() {
    GO.conforms();
}

#[test]
fn the_go_client_syncs_an_event_before_emit_returns() {
    GO.syncs_before_emit_returns();
}

#[test]
fn the_go_client_works_with_the_real_gate() {
    GO.works_with_the_real_gate();
}

#[test]
fn the_php_client_passes_its_unit_tests() {
    PHP.passes_its_unit_tests();
}

#[test]
fn the_php_client_conforms_to_the_specification() {
    PHP.conforms();
}

#[test]
fn the_php_client_works_with_the_real_gate() {
    PHP.works_with_the_real_gate();
}

#[test]
fn the_php_example_of_the_page_sends_an_event() {
    let start = format!("<?php require '{}';\n", text(&PHP.path().join("src/autoload.php")));
    is_accepted(&PHP, "php", &["php"], |example| format!("{start}{example}"));
}
