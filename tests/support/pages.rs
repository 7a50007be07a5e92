//! Code blocks of the documentation: extracted, run in a scratch folder, compared with the output that a page shows.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::gate::{self, Gate, Launch};
use super::machine::text;

/// A fenced code block.
#[derive(Debug)]
pub(crate) struct Block {
    pub(crate) language: String,
    pub(crate) text: String,
    /// The `json` or `text` block that directly follows a block of commands.
    pub(crate) output: Option<String>,
}

/// Root of the repository.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

/// The pages of the documentation, by path from the root.
pub(crate) fn pages() -> Vec<String> {
    let mut pages: Vec<String> =
        ["README.md", "CONTRIBUTING.md", "ARCHITECTURE.md"].map(str::to_owned).to_vec();
    let mut folders = vec!["docs".to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in root().join(&folder).read_dir().unwrap() {
            let entry = entry.unwrap();
            let path = format!("{folder}/{}", entry.file_name().to_str().unwrap());
            if entry.file_type().unwrap().is_dir() {
                folders.push(path);
            } else if entry.path().extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages.sort();
    pages
}

/// The code blocks of a page, in order.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    parse(&fs::read_to_string(root().join(page)).unwrap())
}

fn parse(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let mut open: Option<(usize, Block)> = None;
    // Whether only empty lines were seen since the last block.
    let mut is_adjacent = false;
    for line in page.lines() {
        let indent = line.len() - line.trim_start().len();
        if let Some((indent, block)) = &mut open {
            if line.trim() != "```" {
                block.text.push_str(line.get(*indent..).unwrap_or_default());
                block.text.push('\n');
                continue;
            }
            let (_, block) = open.take().expect("a block is open");
            let is_output = is_adjacent && ["json", "text"].contains(&block.language.as_str());
            match blocks.last_mut() {
                Some(last) if is_output && last.language == "sh" && last.output.is_none() => {
                    last.output = Some(block.text);
                }
                _ => blocks.push(block),
            }
            is_adjacent = true;
        } else if let Some(language) = line.trim_start().strip_prefix("```") {
            let language = language.trim().to_owned();
            open = Some((indent, Block { language, text: String::new(), output: None }));
        } else if !line.trim().is_empty() {
            is_adjacent = false;
        }
    }
    assert!(open.is_none(), "a code block is not closed");
    blocks
}

/// A part of a block of commands.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// Start of a gate, with its variables and arguments after `serve`.
    Serve(BTreeMap<String, String>, Vec<String>),
    /// Start of an edge agent.
    Edge,
    /// `systemctl stop admit`, `systemctl start admit`.
    Stop,
    Start,
    /// Lines for the shell.
    Shell(String),
}

/// Splits a block at the lines that start and stop servers: the session does that, to know ports and process ids.
fn steps(commands: &str) -> Vec<Step> {
    let mut steps = Vec::new();
    for line in commands.lines() {
        let line = line.replace("cargo run --release -- ", "admit ");
        let command = line.split(" #").next().unwrap_or_default().trim().trim_end_matches('&');
        let mut words = command.split_whitespace().peekable();
        let mut variables = BTreeMap::new();
        while let Some((name, value)) = words.peek().and_then(|word| word.split_once('='))
            && name.chars().all(|letter| letter.is_ascii_uppercase() || letter == '_')
        {
            variables.insert(name.to_owned(), value.to_owned());
            words.next();
        }
        let words: Vec<&str> = words.collect();
        match words.as_slice() {
            ["admit", "serve", arguments @ ..] => {
                let arguments = arguments.iter().map(|&word| word.to_owned()).collect();
                steps.push(Step::Serve(variables, arguments));
            }
            ["admit", "edge"] => steps.push(Step::Edge),
            ["systemctl", "stop", "admit"] => steps.push(Step::Stop),
            ["systemctl", "start", "admit"] => steps.push(Step::Start),
            // The session waits until a server is ready.
            ["sleep", _] | ["cargo", "xtask", ..] => {}
            _ => match steps.last_mut() {
                Some(Step::Shell(lines)) => {
                    lines.push_str(&line);
                    lines.push('\n');
                }
                _ => steps.push(Step::Shell(line + "\n")),
            },
        }
    }
    steps
}

/// A reader who pastes one block after the other: a scratch folder with the files of the repository that pages
/// name, a gate, and perhaps an edge agent.
pub(crate) struct Session {
    folder: TempDir,
    gate: Option<Gate>,
    agent: Option<Gate>,
}

impl Session {
    pub(crate) fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["crates", "deploy", "docs"] {
            symlink(root().join(name), folder.path().join(name)).unwrap();
        }
        fs::create_dir(folder.path().join("bin")).unwrap();
        symlink(gate::binary(), folder.path().join("bin/admit")).unwrap();
        fs::write(folder.path().join("admit.toml"), "").unwrap();
        Self { folder, gate: None, agent: None }
    }

    fn data(&self) -> PathBuf {
        self.folder.path().join("admit-data")
    }

    /// The running gate; a default one is started if there is none.
    pub(crate) fn gate(&mut self) -> &Gate {
        if self.gate.is_none() {
            self.serve(&BTreeMap::new(), &[]);
        }
        self.gate.as_ref().expect("a gate was started")
    }

    fn serve(&mut self, variables: &BTreeMap<String, String>, arguments: &[String]) {
        self.stop_gate();
        let mut launch = Launch::on(&self.data()).in_folder(self.folder.path());
        for argument in arguments {
            launch = launch.argument(argument.replace("/etc/admit/", ""));
        }
        for (name, value) in variables {
            launch = launch.variable(name, value);
        }
        self.gate = Some(launch.start());
    }

    fn stop_gate(&mut self) {
        if let Some(gate) = self.gate.take() {
            gate.stop();
        }
    }

    /// Runs a block; returns its standard output. Panics if a command fails.
    pub(crate) fn run(&mut self, commands: &str) -> String {
        let mut output = String::new();
        for step in steps(commands) {
            match step {
                Step::Serve(variables, arguments) => self.serve(&variables, &arguments),
                Step::Edge => {
                    let data = self.folder.path().join("admit-edge");
                    let address = self.gate().address();
                    self.agent = Some(Launch::edge(&data, address).start());
                }
                Step::Stop => self.stop_gate(),
                Step::Start => self.serve(&BTreeMap::new(), &[]),
                Step::Shell(script) => output.push_str(&self.shell(&script)),
            }
        }
        output
    }

    fn shell(&mut self, script: &str) -> String {
        // A stopped gate stays stopped: commands such as `ledger migrate` need that.
        let address = match &self.gate {
            Some(gate) => gate.address(),
            None if self.data().exists() => ([127, 0, 0, 1], 1).into(),
            None => self.gate().address(),
        };
        let script = script
            .replace("127.0.0.1:8080", &address.to_string())
            .replace("/var/lib/admit", "admit-data")
            .replace("/backup/", "backup-")
            // An endless response ends sooner; curl's exit code is then 28, as the page explains.
            .replace("--max-time 10 ", "--max-time 1 ");
        let mut command = gate::command("sh");
        let path = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}/bin:{path}", text(self.folder.path())));
        let ran = command
            .args(["-c", &format!("set -e\n{script}")])
            .current_dir(self.folder.path())
            .output()
            .unwrap();
        let stderr = String::from_utf8_lossy(&ran.stderr);
        let is_timeout = script.contains("--max-time") && ran.status.code() == Some(28);
        assert!(ran.status.success() || is_timeout, "{}: {script}\n{stderr}", ran.status);
        String::from_utf8(ran.stdout).unwrap()
    }

    /// Stops agent and gate.
    pub(crate) fn end(mut self) {
        if let Some(agent) = self.agent.take() {
            agent.stop();
        }
        self.stop_gate();
    }
}

/// Asserts that `output` is what a page shows: `…` stands for any text; times, dates, ids of a ledger and leases
/// may differ, and whitespace does not count.
pub(crate) fn assert_shown(page: &str, commands: &str, shown: &str, output: &str) {
    assert!(
        is_shown(shown, output),
        "{page}: these commands\n{commands}\nare shown with the output\n{shown}\nbut print\n{output}"
    );
}

fn is_shown(shown: &str, output: &str) -> bool {
    let (shown, output) = (comparable(shown), comparable(output));
    let mut parts = shown.split('…');
    let Some(mut rest) = parts.next().and_then(|first| output.strip_prefix(first)) else {
        return false;
    };
    let mut parts = parts.peekable();
    if parts.peek().is_none() {
        return rest.is_empty();
    }
    while let Some(part) = parts.next() {
        if parts.peek().is_none() {
            return rest.ends_with(part);
        }
        let Some(at) = rest.find(part) else { return false };
        rest = &rest[at + part.len()..];
    }
    true
}

/// The text without whitespace, and with one form for each value that differs from run to run.
fn comparable(text: &str) -> String {
    let is_part = |c: char| c.is_ascii_alphanumeric() || "-:.+_".contains(c);
    let mut comparable = String::new();
    let mut word = String::new();
    let mut is_lease = false;
    for c in text.chars().chain(['\n']) {
        if is_part(c) {
            word.push(c);
            continue;
        }
        if !word.is_empty() {
            comparable.push_str(&masked(&word, is_lease));
            is_lease = word == "lease" || (is_lease && word == ":");
            word.clear();
        }
        if !c.is_whitespace() {
            comparable.push(c);
        }
    }
    comparable
}

fn masked(word: &str, is_lease: bool) -> String {
    let is_hex = |text: &str| text.chars().all(|c| c.is_ascii_hexdigit());
    let shape: String = word.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    if shape.starts_with("0000-00-00T00:00:00") {
        return "TIME".to_owned();
    }
    if shape == "0000-00-00" {
        return "DATE".to_owned();
    }
    if let Some((tag, seq)) = word.strip_prefix("rcp-").and_then(|rest| rest.split_once('-'))
        && is_hex(tag)
    {
        return format!("rcp-TAG-{seq}");
    }
    if is_lease && is_hex(word) {
        return "LEASE".to_owned();
    }
    word.to_owned()
}

#[test]
fn output_is_compared_apart_from_times_and_ids() {
    let shown = "{\"id\":\"rcp-00000001-2\",\"at\":\"2026-01-01T00:00:00Z\",…}\ndone";
    assert!(is_shown(
        shown,
        "{\"id\":\"rcp-abcdef12-2\",\"at\":\"2027-02-02T11:11:11.123Z\",\"n\":1}done\n"
    ));
    assert!(!is_shown(
        shown,
        "{\"id\":\"rcp-abcdef12-3\",\"at\":\"2027-02-02T11:11:11.123Z\",\"n\":1}done"
    ));
    assert!(!is_shown(
        shown,
        "{\"id\":\"rcp-abcdef12-2\",\"at\":\"2027-02-02T11:11:11.123Z\",\"n\":1}"
    ));
    assert!(is_shown("\"lease\":\"ab\",\"x\":\"cd\"", "\"lease\":\"ef\",\"x\":\"cd\""));
    assert!(!is_shown("\"lease\":\"ab\",\"x\":\"cd\"", "\"lease\":\"ab\",\"x\":\"ef\""));
    assert!(!is_shown("one", "one two"));
}

#[test]
fn a_block_is_split_at_servers_and_knows_its_output() {
    let page = "```sh\nA=1 admit serve &\nsleep 2\nadmit edge\nadmit edge status   # now\n```\n\n```text\nx\n```\ntext\n```json\n{}\n```\n";
    let found = parse(page);
    assert_eq!(found.len(), 2);
    assert_eq!((found[0].output.as_deref(), found[1].language.as_str()), (Some("x\n"), "json"));
    let variables = BTreeMap::from([("A".to_owned(), "1".to_owned())]);
    assert_eq!(
        steps(&found[0].text),
        [
            Step::Serve(variables, Vec::new()),
            Step::Edge,
            Step::Shell("admit edge status   # now\n".to_owned())
        ]
    );
}
