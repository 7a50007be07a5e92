//! What the tests need beyond the Rust toolchain: found, installed, or said to be missing.
//!
//! A missing tool never fails the run by itself: the tests that want it say that they were
//! skipped. The one exception is `python3`, whose `json` module is the yardstick for our own.

use std::process::Command;

use crate::steps::{Failed, Step, answers, program_exists};
use crate::{node, python};

/// Something that some tests start.
struct Need {
    sign: Sign,
    package: &'static str,
    used_by: &'static str,
    must_exist: bool,
}

/// By what it is known to be there.
enum Sign {
    Program(&'static str),
    PythonModule(&'static str),
}

const NEEDS: &[Need] = &[
    Need {
        sign: Sign::Program("python3"),
        package: "python3",
        used_by: "tests that compare canonical JSON with CPython",
        must_exist: true,
    },
    Need {
        sign: Sign::Program("kill"),
        package: "procps",
        used_by: "tests that end what they have started",
        must_exist: true,
    },
    Need {
        sign: Sign::PythonModule("ensurepip"),
        package: "python3-venv",
        used_by: "tests with servers and clients from Python's packages",
        must_exist: false,
    },
    Need {
        sign: Sign::Program("npm"),
        package: "npm",
        used_by: "tests with servers from Node.js's packages",
        must_exist: false,
    },
    Need {
        sign: Sign::Program("strace"),
        package: "strace",
        used_by: "tests that count syncs and inject sync errors",
        must_exist: false,
    },
    Need {
        sign: Sign::Program("nbdkit"),
        package: "nbdkit",
        used_by: "tests that cut the power and break the disk",
        must_exist: false,
    },
    Need {
        sign: Sign::Program("nbdfuse"),
        package: "libnbd-bin",
        used_by: "tests that cut the power and break the disk",
        must_exist: false,
    },
    Need {
        sign: Sign::Program("fusermount3"),
        package: "fuse3",
        used_by: "tests that cut the power and break the disk",
        must_exist: false,
    },
    Need {
        sign: Sign::Program("mkfs.ext4"),
        package: "e2fsprogs",
        used_by: "tests that cut the power and break the disk",
        must_exist: false,
    },
    Need {
        sign: Sign::Program("pg_lsclusters"),
        package: "postgresql",
        used_by: "tests of the ledger on PostgreSQL and of several gates on one ledger",
        must_exist: false,
    },
    Need {
        sign: Sign::Program("wrk"),
        package: "wrk",
        used_by: "the test that holds a mixed load",
        must_exist: false,
    },
    Need {
        sign: Sign::Program("curl"),
        package: "curl",
        used_by: "the tests that run the commands of the documentation",
        must_exist: false,
    },
    Need {
        sign: Sign::Program("sqlite3"),
        package: "sqlite3",
        used_by: "the tests that run the commands of the documentation",
        must_exist: false,
    },
];

/// Installs what is missing when it can, and says plainly what stays missing.
pub(crate) fn install_what_is_missing() -> Result<(), Failed> {
    let wanted = missing();
    if !wanted.is_empty() {
        let packages: Vec<&str> = wanted.iter().map(|need| need.package).collect();
        if let Err(Failed(why)) = install(&packages) {
            println!("setup: {why}");
        }
        report(&missing())?;
    }
    python::install();
    node::install();
    Ok(())
}

fn missing() -> Vec<&'static Need> {
    NEEDS.iter().filter(|need| !need.sign.is_seen()).collect()
}

impl Sign {
    const fn name(&self) -> &'static str {
        match self {
            Self::Program(name) | Self::PythonModule(name) => name,
        }
    }

    fn is_seen(&self) -> bool {
        match self {
            Self::Program(name) => program_exists(name),
            Self::PythonModule(name) => {
                answers(Command::new("python3").args(["-c", &format!("import {name}")]))
            }
        }
    }
}

/// Says which tests will be skipped; fails only for what no test run can do without.
fn report(missing: &[&Need]) -> Result<(), Failed> {
    for need in missing {
        println!(
            "setup: {} is missing (Debian package {}); {} will say that they were skipped",
            need.sign.name(),
            need.package,
            need.used_by
        );
    }
    match missing.iter().find(|need| need.must_exist) {
        Some(need) => {
            Err(Failed(format!("{} must be installed, for {}", need.sign.name(), need.used_by)))
        }
        None => Ok(()),
    }
}

fn install(packages: &[&str]) -> Result<(), Failed> {
    let by_hand = format!("apt-get install --no-install-recommends {}", packages.join(" "));
    if !program_exists("apt-get") {
        return Err(Failed(format!(
            "there is no apt-get here; find a way to: install {}",
            packages.join(" ")
        )));
    }
    if !is_root() {
        return Err(Failed(format!("not root, so nothing was installed; as root: {by_hand}")));
    }
    apt_get("package lists", &["update"])?;
    let install = ["install", "--yes", "--no-install-recommends"];
    if apt_get("packages", &[&install, packages].concat()).is_ok() {
        return Ok(());
    }
    // One package that cannot be had must not keep the others away.
    for package in packages {
        if let Err(Failed(why)) = apt_get("package", &[&install[..], &[package]].concat()) {
            println!("setup: {package}: {why}");
        }
    }
    Ok(())
}

fn apt_get(name: &'static str, arguments: &[&str]) -> Result<(), Failed> {
    Step::new(name, "apt-get")
        // Another package manager may be at work on a new machine: wait for it rather than fail.
        .and(&["-o", "DPkg::Lock::Timeout=120", "-qq"])
        .and(arguments)
        .with("DEBIAN_FRONTEND", "noninteractive")
        .run()
}

fn is_root() -> bool {
    answers(Command::new("sh").args(["-c", "test \"$(id -u)\" = 0"]))
}
