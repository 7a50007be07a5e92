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
    Durable front door for events: admits every event exactly once, acknowledges it only after it is on
    disk, and stores a receipt for every decision

    Usage: admit [OPTIONS] <COMMAND>

    Commands:
      serve        Run a gate
      edge         Run an agent that stores events on this machine until a gate acknowledges them
      receipts     List and print receipts, also while the gate runs
      quarantine   List and resolve quarantined events
      intents      List and print intents, also while the gate runs
      inbox        List, claim and complete inbox events
      import       Import files through the running gate
      rounds       List and print rounds, also while the gate runs; accept or relink their events
      replay       Execute an intent again through the running gate
      runs         Submit, list, report and close runs
      stream       Stream the packs of READY runs to a gate
      reconcile    List and resolve ambiguous publishes
      bench        Benchmark durable admission on this machine
      verify       Verify the ledger against bodies, receipts, artifacts and bus
      repair       Restore artifact files from the ledger, such as receipts
      backup       Make a consistent copy of a data folder, also while the gate runs
      restore      Restore a data folder from a backup
      ledger       Show the status of the ledger, migrate it, copy it, attach stores
      keys         Generate or hash keys of principals
      config       Print or check a config
      completions  Print shell completions
      help         Print this message or the help of the given subcommand(s)

    Options:
          --json     Print JSON instead of text
      -h, --help     Print help
      -V, --version  Print version

    Examples:
      admit serve                        a gate on 127.0.0.1:8080, data in ./admit-data
      admit receipts list --limit 5      the first five decisions
      admit quarantine list --json       events that were not admitted, as JSON
      admit config show > admit.toml     the reference config, to edit

    Exit codes: 0 success, 1 failure, 2 error in the command line or the config, 74 the disk of the
    ledger did not confirm a sync (the gate stopped; check the disk, then start it again).
    ");
}

#[test]
fn the_help_of_serve_has_examples() {
    insta::assert_snapshot!(help(&["serve"]), @r"
    Run a gate

    Usage: admit serve [OPTIONS]

    Options:
          --config <FILE>  Config file [env: ADMIT_CONFIG] [default: none; `admit config show` prints
                           the defaults]
          --data <DIR>     Data folder [default: ./admit-data]
          --listen <ADDR>  Listen address, IP:PORT; port 0 picks a free port [default: 127.0.0.1:8080]
          --json           Print JSON instead of text
      -h, --help           Print help

    Examples:
      admit serve
      admit serve --data /var/lib/admit --listen 127.0.0.1:9000
      admit serve --config /etc/admit.toml
      ADMIT_LOG__LEVEL=debug admit serve

    SIGTERM or Ctrl-C completes the accepted requests and exits with 0.
    ");
}

#[test]
fn the_help_of_receipts_has_examples() {
    insta::assert_snapshot!(help(&["receipts"]), @r"
    List and print receipts, also while the gate runs

    Usage: admit receipts [OPTIONS] <COMMAND>

    Commands:
      get   Print a receipt
      list  List receipts in ledger order, oldest first
      help  Print this message or the help of the given subcommand(s)

    Options:
          --json  Print JSON instead of text
      -h, --help  Print help
    ");
    insta::assert_snapshot!(help(&["receipts", "get"]), @r"
    Print a receipt

    Usage: admit receipts get [OPTIONS] <ID>

    Arguments:
      <ID>  Receipt id, such as rcp-5e1f09ab-42, or with --door an id of that door

    Options:
          --door <DOOR>    Door of the id: a dedupe_key of pixel-control, an event_id of skyra, a
                           receipt_id or dedupe_key of ingestion-gate
          --run <RUN>      Run of an id of ingestion-gate
          --body           Print the raw body instead, byte for byte
          --document       Print the document that the ingestion gate issued instead, byte for byte
          --config <FILE>  Config file [env: ADMIT_CONFIG] [default: none; `admit config show` prints
                           the defaults]
          --data <DIR>     Data folder [default: ./admit-data]
          --json           Print JSON instead of text
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
          --verdict <VERDICT>  Only this verdict; repeatable [possible values: fresh, revision,
                               conflict, refused]
          --door <DOOR>        Only submissions at this door, such as pixel-control
          --principal <NAME>   Only submissions of this principal
          --after <ID>         Pagination cursor: only rows after this receipt (the `next` value of the
                               previous page)
          --limit <N>          Maximum number of rows [default: 50]
          --config <FILE>      Config file [env: ADMIT_CONFIG] [default: none; `admit config show`
                               prints the defaults]
          --data <DIR>         Data folder [default: ./admit-data]
          --json               Print JSON instead of text
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
    List refusals and conflicts, oldest first; with --run the records of the ingestion gate

    Usage: admit quarantine list [OPTIONS]

    Options:
          --door <DOOR>       Only submissions at this door, such as pixel-control
          --principal <NAME>  Only submissions of this principal
          --after <ID>        Pagination cursor: only rows after this receipt (the `next` value of the
                              previous page)
          --limit <N>         Maximum number of rows [default: 50]
          --run <RUN>         Only quarantine records of this run (unscoped: without a run)
          --open              With --run: only records that are neither superseded nor released
          --config <FILE>     Config file [env: ADMIT_CONFIG] [default: none; `admit config show` prints
                              the defaults]
          --data <DIR>        Data folder [default: ./admit-data]
          --json              Print JSON instead of text
      -h, --help              Print help

    Examples:
      admit quarantine list
      admit quarantine list --door pixel-control --limit 5
      admit quarantine list --run platform_20260212T085637Z --open
      admit quarantine list --run unscoped           events without a run
      admit receipts get rcp-5e1f09ab-42 --body     the raw body of an event
    ");
}

#[test]
fn the_help_of_config_has_examples() {
    insta::assert_snapshot!(help(&["config", "show"]), @r"
    Print the reference config, or with --effective the config of a gate started here

    Usage: admit config show [OPTIONS]

    Options:
          --effective      Merge file, environment and flags; without comments
          --config <FILE>  Config file [env: ADMIT_CONFIG] [default: none; `admit config show` prints
                           the defaults]
          --data <DIR>     Data folder [default: ./admit-data]
          --json           Print JSON instead of text
      -h, --help           Print help

    Examples:
      admit config show > admit.toml
      ADMIT_LOG__LEVEL=debug admit config show --effective --config admit.toml

    Keys of principals are never printed.
    ");
    insta::assert_snapshot!(help(&["config", "check"]), @r"
    Check a config file, without the environment

    Usage: admit config check [OPTIONS] <FILE>

    Arguments:
      <FILE>  Config file

    Options:
          --json  Print JSON instead of text
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
    Stream the packs of READY runs to a gate

    Usage: admit stream [OPTIONS]

    Options:
          --once                       Poll the control bus once, then exit
          --gate <URL>                 URL of the gate [default: the socket in the data folder, else the
                                       config's listen]
          --max-messages <N>           Maximum number of READY messages per poll; 0 is unlimited [env:
                                       WSP_READY_MAX_MESSAGES]
          --max-events-per-output <N>  Maximum number of rows per output, from the first; 0 is unlimited
                                       [env: WSP_MAX_EVENTS_PER_OUTPUT]
          --speedup <X>                Replay speed as a multiple of event time; 0 does not wait
                                       [default: 600]
          --checkpoint-every <N>       Rows of an output between checkpoints; a crash sends at most
                                       these again [default: 10]
          --in-flight <N>              Envelopes of an output in flight, at most checkpoint-every
                                       [default: 16]
          --concurrency <N>            Outputs streamed concurrently; 0 is all [env:
                                       WSP_OUTPUT_CONCURRENCY]
          --retry-max-attempts <N>     Attempts per envelope before the run fails [default: 5]
          --retry-base-delay-ms <MS>   Initial retry backoff; doubles with each attempt [default: 250]
          --retry-max-delay-ms <MS>    Maximum retry backoff [default: 5000]
          --poll-ms <MS>               Poll interval of the control bus [default: 2000]
          --platform-run-id <ID>       Only runs of this platform run [env: PLATFORM_RUN_ID]
          --again                      Also stream runs that were streamed before, from their
                                       checkpoints
          --from-start                 Ignore checkpoints and send every row again; the gate
                                       deduplicates them
          --config <FILE>              Config file [env: ADMIT_CONFIG] [default: none; `admit config
                                       show` prints the defaults]
          --data <DIR>                 Data folder [default: ./admit-data]
          --json                       Print JSON instead of text
      -h, --help                       Print help

    Examples:
      admit stream --once --gate http://127.0.0.1:8080
      admit stream --once --max-events-per-output 200 --speedup 0
      admit stream --platform-run-id platform_20260212T085637Z

    It may be killed at any time: the next start continues from the checkpoints, and the gate
    deduplicates rows that are sent again. Ctrl-C stops it cleanly. A gate with principals requires a
    key in ADMIT_KEY or in the file stream.gate_key_file.
    ");
}
