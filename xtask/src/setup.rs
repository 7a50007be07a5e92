//! Tools that the tests need beyond the Rust toolchain: finds, installs and reports them.
//!
//! A missing tool does not fail the run: the tests that need it are reported as skipped. The exception is
//! `python3`, whose `json` module is the reference for canonical JSON.

use std::process::Command;

use crate::steps::{Step, StepFailed, answers, program_exists};
use crate::{node, python};

/// A tool that some tests start.
struct RequiredTool {
    sign: Sign,
    package: &'static str,
    used_by: &'static str,
    must_exist: bool,
}

/// Evidence that the tool is installed.
enum Sign {
    Program(&'static str),
    PythonModule(&'static str),
    PhpExtension(&'static str),
}

const NEEDS: &[RequiredTool] = &[
    RequiredTool {
        sign: Sign::Program("python3"),
        package: "python3",
        used_by: "tests that compare canonical JSON with CPython",
        must_exist: true,
    },
    RequiredTool {
        sign: Sign::Program("kill"),
        package: "procps",
        used_by: "tests that stop the processes they started",
        must_exist: true,
    },
    RequiredTool {
        sign: Sign::PythonModule("ensurepip"),
        package: "python3-venv",
        used_by: "tests with servers and clients from Python's packages",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("npm"),
        package: "npm",
        used_by: "tests with servers from Node.js's packages",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("node"),
        package: "nodejs",
        used_by: "tests of the JavaScript client",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("go"),
        package: "golang-go",
        used_by: "tests of the Go client",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("php"),
        package: "php-cli",
        used_by: "tests of the PHP client",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::PhpExtension("curl"),
        package: "php-curl",
        used_by: "tests of the PHP client",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("strace"),
        package: "strace",
        used_by: "tests that count syncs and inject sync errors",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("nbdkit"),
        package: "nbdkit",
        used_by: "tests that cut the power and break the disk",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("nbdfuse"),
        package: "libnbd-bin",
        used_by: "tests that cut the power and break the disk",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("fusermount3"),
        package: "fuse3",
        used_by: "tests that cut the power and break the disk",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("mkfs.ext4"),
        package: "e2fsprogs",
        used_by: "tests that cut the power and break the disk",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("pg_lsclusters"),
        package: "postgresql",
        used_by: "tests of the ledger on PostgreSQL and of several gates on one ledger",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("wrk"),
        package: "wrk",
        used_by: "the test of a mixed load",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("curl"),
        package: "curl",
        used_by: "the tests that run the commands of the documentation",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("sqlite3"),
        package: "sqlite3",
        used_by: "the tests that run the commands of the documentation",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("promtool"),
        package: "prometheus",
        used_by: "the tests of the alert rules and the dashboard",
        must_exist: false,
    },
    RequiredTool {
        sign: Sign::Program("systemd-analyze"),
        package: "systemd",
        used_by: "the tests of the systemd units",
        must_exist: false,
    },
];

/// Installs missing tools where possible, and reports the rest.
pub(crate) fn install_what_is_missing() -> Result<(), StepFailed> {
    let wanted = missing();
    if !wanted.is_empty() {
        let packages: Vec<&str> = wanted.iter().map(|need| need.package).collect();
        if let Err(StepFailed(why)) = install(&packages) {
            println!("setup: {why}");
        }
        report(&missing())?;
    }
    python::install();
    node::install();
    Ok(())
}

fn missing() -> Vec<&'static RequiredTool> {
    NEEDS.iter().filter(|need| !need.sign.is_seen()).collect()
}

impl Sign {
    const fn name(&self) -> &'static str {
        match self {
            Self::Program(name) | Self::PythonModule(name) | Self::PhpExtension(name) => name,
        }
    }

    fn is_seen(&self) -> bool {
        match self {
            Self::Program(name) => program_exists(name),
            Self::PythonModule(name) => {
                answers(Command::new("python3").args(["-c", &format!("import {name}")]))
            }
            Self::PhpExtension(name) => {
                let check = format!("exit(extension_loaded('{name}') ? 0 : 1);");
                answers(Command::new("php").args(["-r", &check]))
            }
        }
    }
}

/// Reports the tests that will be skipped; fails if a required tool is missing.
fn report(missing: &[&RequiredTool]) -> Result<(), StepFailed> {
    for need in missing {
        println!(
            "setup: {} is missing (Debian package {}); {} will be skipped",
            need.sign.name(),
            need.package,
            need.used_by
        );
    }
    match missing.iter().find(|need| need.must_exist) {
        Some(need) => {
            Err(StepFailed(format!("{} must be installed, for {}", need.sign.name(), need.used_by)))
        }
        None => Ok(()),
    }
}

fn install(packages: &[&str]) -> Result<(), StepFailed> {
    let by_hand = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if !program_exists("apt-get") {
        return Err(StepFailed(format!(
            "apt-get is missing; install these packages by hand: {}",
            packages.join(" ")
        )));
    }
    if !is_root() {
        return Err(StepFailed(format!(
            "nothing was installed, because this needs root; run as root: {by_hand}"
        )));
    }
    apt_get("package lists", &["update"])?;
    let install = ["install", "--yes", "--no-install-recommends"];
    if apt_get("packages", &[&install, packages].concat()).is_ok() {
        return Ok(());
    }
    // One unavailable package must not prevent the others.
    for package in packages {
        if let Err(StepFailed(why)) = apt_get("package", &[&install[..], &[package]].concat()) {
            println!("setup: {package}: {why}");
        }
    }
    Ok(())
}

fn apt_get(name: &'static str, arguments: &[&str]) -> Result<(), StepFailed> {
    Step::new(name, "apt-get")
        // Wait for a package manager that is still running on a new machine.
        .and(&["-o", "DPkg::Lock::Timeout=120", "-qq"])
        .and(arguments)
        .with("DEBIAN_FRONTEND", "noninteractive")
        .run()
}

fn is_root() -> bool {
    answers(Command::new("sh").args(["-c", "test \"$(id -u)\" = 0"]))
}
