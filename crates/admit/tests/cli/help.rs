//! Snapshots of the help texts, which users see.

use crate::world::World;

fn help(arguments: &[&str]) -> String {
    let mut arguments = arguments.to_vec();
    arguments.push("--help");
    let output = World::new().run(&arguments);
    assert_eq!(output.code, Some(0), "{}", output.err);
    output.out
}

#[test]
fn the_help_has_a_description_and_examples() {
    insta::assert_snapshot!(help(&[]), @r"
    The front door for events: every event is let in exactly once, nothing is said to be in before the
    disk says so, and every decision leaves a receipt

    Usage: admit [OPTIONS] <COMMAND>

    Commands:
      serve        Open the doors
      edge         Keep events on this machine until a gate has them
      receipts     Look at what was decided, also while the gate runs
      quarantine   Look at what was kept but not applied, and let it go
      intents      Look at what became of intents, also while the gate runs
      inbox        Look at the inbox, claim from it and finish what was claimed
      import       Bring files into the running gate
      rounds       Look at rounds, also while the gate runs; link again what is not linked
      replay       Have the running gate make one more attempt at what an intent causes
      runs         Ask for scenario runs, and see what becomes of them
      stream       Stream the packs of runs that are READY to a gate
      reconcile    Look at ambiguous publishes, and resolve them with a reason
      bench        Measure how fast this machine admits events durably
      verify       Check that ledger, bodies, receipts and bus agree with each other
      repair       Write files again that the ledger can make again, such as receipts
      backup       Copy a gate's data folder as it stands at one moment, also while the gate runs
      restore      Make a data folder out of a backup
      ledger       Look at the ledger as a whole, bring it up to date, copy it elsewhere
      keys         Draw or hash keys of principals
      config       Print or check configs
      completions  Print completions for a shell
      help         Print this message or the help of the given subcommand(s)

    Options:
          --json     Print JSON for programs instead of text for people
      -h, --help     Print help
      -V, --version  Print version

    Examples:
      admit serve                        a gate on 127.0.0.1:8080, data in ./admit-data
      admit receipts list --limit 5      what was decided
      admit quarantine list --json       what could not be admitted, for a program
      admit config show > admit.toml     the reference config, ready to change

    Exit codes: 0 done, 1 something failed, 2 the command line or the config is wrong, 74 the ledger's
    disk did not confirm a sync (the gate stopped itself; check the disk, then start it again).
    ");
}

#[test]
fn the_help_of_serve_has_examples() {
    insta::assert_snapshot!(help(&["serve"]), @r"
    Open the doors

    Usage: admit serve [OPTIONS]

    Options:
          --config <FILE>  The config file [env: ADMIT_CONFIG] [default: none, what `admit config show`
                           prints]
          --data <DIR>     The data folder [default: ./admit-data]
          --listen <ADDR>  Where to listen, IP:PORT; port 0 takes any free one [default: 127.0.0.1:8080]
          --json           Print JSON for programs instead of text for people
      -h, --help           Print help

    Examples:
      admit serve
      admit serve --data /var/lib/admit --listen 127.0.0.1:9000
      admit serve --config /etc/admit.toml
      ADMIT_LOG__LEVEL=debug admit serve

    SIGTERM or Ctrl-C finishes what was accepted and exits with 0.
    ");
}

#[test]
fn the_help_of_receipts_has_examples() {
    insta::assert_snapshot!(help(&["receipts"]), @r"
    Look at what was decided, also while the gate runs

    Usage: admit receipts [OPTIONS] <COMMAND>

    Commands:
      get   Print one receipt
      list  List receipts in ledger order, oldest first
      help  Print this message or the help of the given subcommand(s)

    Options:
          --json  Print JSON for programs instead of text for people
      -h, --help  Print help
    ");
    insta::assert_snapshot!(help(&["receipts", "get"]), @r"
    Print one receipt

    Usage: admit receipts get [OPTIONS] <ID>

    Arguments:
      <ID>  The receipt id, such as rcp-5e1f09ab-42, or with --door an id that its own answers give

    Options:
          --door <DOOR>    The door that has given the id: the dedupe_key of pixel-control, the event_id
                           of skyra, the receipt_id or dedupe_key of ingestion-gate
          --run <RUN>      The run of an id of ingestion-gate
          --body           Print the raw body instead, byte for byte as it was received
          --document       Print the document that the ingestion gate issued instead, as it was stored
          --config <FILE>  The config file [env: ADMIT_CONFIG] [default: none, what `admit config show`
                           prints]
          --data <DIR>     The data folder [default: ./admit-data]
          --json           Print JSON for programs instead of text for people
      -h, --help           Print help

    Examples:
      admit receipts get rcp-5e1f09ab-42
      admit receipts get rcp-5e1f09ab-42 --json
      admit receipts get rcp-5e1f09ab-42 --body > event.json
      admit receipts get rcp-5e1f09ab-42 --document
      admit receipts get DEDUPE_KEY --door pixel-control
      admit receipts get RECEIPT_ID --door ingestion-gate --run platform_20260212T085637Z
    ");
    insta::assert_snapshot!(help(&["receipts", "list"]), @r"
    List receipts in ledger order, oldest first

    Usage: admit receipts list [OPTIONS]

    Options:
          --verdict <VERDICT>  Only this verdict; may be given several times [possible values: fresh,
                               revision, conflict, refused]
          --door <DOOR>        Only what came in at this door, such as pixel-control
          --principal <NAME>   Only what this principal sent
          --after <ID>         Only what came after this receipt
          --limit <N>          At most so many [default: 50]
          --config <FILE>      The config file [env: ADMIT_CONFIG] [default: none, what `admit config
                               show` prints]
          --data <DIR>         The data folder [default: ./admit-data]
          --json               Print JSON for programs instead of text for people
      -h, --help               Print help

    Examples:
      admit receipts list
      admit receipts list --verdict conflict --verdict refused
      admit receipts list --principal arena-1 --after rcp-5e1f09ab-42 --json
    ");
}

#[test]
fn the_help_of_quarantine_has_examples() {
    insta::assert_snapshot!(help(&["quarantine", "list"]), @r"
    List refusals and conflicts in ledger order; with --run the records of the ingestion gate

    Usage: admit quarantine list [OPTIONS]

    Options:
          --door <DOOR>       Only what came in at this door, such as pixel-control
          --principal <NAME>  Only what this principal sent
          --after <ID>        Only what came after this receipt
          --limit <N>         At most so many [default: 50]
          --run <RUN>         Only quarantine records of this run (unscoped: of none)
          --open              With --run: only those that are neither superseded nor released
          --config <FILE>     The config file [env: ADMIT_CONFIG] [default: none, what `admit config
                              show` prints]
          --data <DIR>        The data folder [default: ./admit-data]
          --json              Print JSON for programs instead of text for people
      -h, --help              Print help

    Examples:
      admit quarantine list
      admit quarantine list --door pixel-control --limit 5
      admit quarantine list --run platform_20260212T085637Z --open
      admit quarantine list --run unscoped           what names no run
      admit receipts get rcp-5e1f09ab-42 --body     the body of one of them, byte for byte
    ");
}

#[test]
fn the_help_of_config_has_examples() {
    insta::assert_snapshot!(help(&["config", "show"]), @r"
    Print the reference config, or with --effective what a gate started here would use

    Usage: admit config show [OPTIONS]

    Options:
          --effective      File, environment and flags put together, without comments
          --config <FILE>  The config file [env: ADMIT_CONFIG] [default: none, what `admit config show`
                           prints]
          --data <DIR>     The data folder [default: ./admit-data]
          --json           Print JSON for programs instead of text for people
      -h, --help           Print help

    Examples:
      admit config show > admit.toml
      ADMIT_LOG__LEVEL=debug admit config show --effective --config admit.toml

    Keys of principals are never shown.
    ");
    insta::assert_snapshot!(help(&["config", "check"]), @r"
    Check a config file alone, without the environment

    Usage: admit config check [OPTIONS] <FILE>

    Arguments:
      <FILE>  The config file

    Options:
          --json  Print JSON for programs instead of text for people
      -h, --help  Print help

    Example:
      admit config check admit.toml && systemctl restart admit
    ");
}

#[test]
fn without_arguments_the_help_is_printed() {
    let output = World::new().run(&[]);
    assert_eq!(output.code, Some(2));
    assert_eq!(output.err, help(&[]));
}

#[test]
fn an_unknown_command_is_an_error_with_a_suggestion() {
    let output = World::new().run(&["sevre"]);
    assert_eq!(output.code, Some(2));
    assert!(output.err.contains("'serve'"), "{}", output.err);
}

#[test]
fn the_version_contains_the_commit() {
    let output = World::new().run(&["--version"]);
    let start = format!("admit {} (", env!("CARGO_PKG_VERSION"));
    let commit = output.out.strip_prefix(&start).and_then(|rest| rest.strip_suffix(")\n"));
    let commit = commit.unwrap_or_else(|| panic!("{:?}", output.out));
    let is_commit = commit.len() == 12 && commit.bytes().all(|byte| byte.is_ascii_hexdigit());
    assert!(is_commit || commit == "unknown" || option_env!("ADMIT_COMMIT") == Some(commit));
}

#[test]
fn the_help_of_stream_has_examples() {
    insta::assert_snapshot!(help(&["stream"]), @r"
    Stream the packs of runs that are READY to a gate

    Usage: admit stream [OPTIONS]

    Options:
          --once                       Look at the control bus once, then end
          --gate <URL>                 Where the gate is [default: by its data folder, else as its
                                       config says]
          --max-messages <N>           READY messages to take on in one look; 0 is all [env:
                                       WSP_READY_MAX_MESSAGES]
          --max-events-per-output <N>  Rows of each output to stream, from its first; 0 is all [env:
                                       WSP_MAX_EVENTS_PER_OUTPUT]
          --speedup <X>                Seconds of the rows' own time that pass in one; 0 does not wait
                                       [default: 600]
          --checkpoint-every <N>       Rows of an output between two checkpoints: what a crash sends
                                       again at most [default: 10]
          --in-flight <N>              Envelopes of one output on the way at once, at most
                                       checkpoint-every [default: 16]
          --concurrency <N>            Outputs at once; 0 is all [env: WSP_OUTPUT_CONCURRENCY]
          --retry-max-attempts <N>     How often an envelope is sent before the run has failed [default:
                                       5]
          --retry-base-delay-ms <MS>   The first delay between two attempts; it doubles [default: 250]
          --retry-max-delay-ms <MS>    The longest delay between two attempts [default: 5000]
          --poll-ms <MS>               How often the control bus is looked at [default: 2000]
          --platform-run-id <ID>       Only runs of this platform run [env: PLATFORM_RUN_ID]
          --again                      Also stream runs that were streamed before, from their
                                       checkpoints on
          --from-start                 Send every row again, also those that checkpoints say are
                                       answered for; the gate knows copies
          --config <FILE>              The config file [env: ADMIT_CONFIG] [default: none, what `admit
                                       config show` prints]
          --data <DIR>                 The data folder [default: ./admit-data]
          --json                       Print JSON for programs instead of text for people
      -h, --help                       Print help

    Examples:
      admit stream --once --gate http://127.0.0.1:8080
      admit stream --once --max-events-per-output 200 --speedup 0
      admit stream --platform-run-id platform_20260212T085637Z

    It may be killed at any time: the next one goes on from its checkpoints, and the gate knows copies.
    Ctrl-C stops it in good order. A gate with principals wants a key, from the variable ADMIT_KEY or
    from the file that stream.gate_key_file names.
    ");
}
