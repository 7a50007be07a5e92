//! `admit config`, and invalid configs of a gate.

use crate::world::World;

#[test]
fn the_reference_config_is_printed_and_is_valid() {
    let world = World::new();
    let shown = world.run(&["config", "show"]);
    assert_eq!(shown.code, Some(0));
    world.write("admit.toml", &shown.out);
    let checked = world.run(&["config", "check", "admit.toml"]);
    assert_eq!((checked.code, checked.out.as_str()), (Some(0), "admit.toml is a valid config\n"));
    let checked = world.run(&["config", "check", "admit.toml", "--json"]);
    assert_eq!(checked.json(), serde_json::json!({ "file": "admit.toml", "valid": true }));
}

#[test]
fn the_reference_config_contains_the_defaults() {
    let world = World::new();
    world.write("admit.toml", &world.run(&["config", "show"]).out);
    let without = world.run(&["config", "show", "--effective"]);
    let with = world.run(&["config", "show", "--effective", "--config", "admit.toml"]);
    assert_eq!(without.out, with.out);
    let defaults = world.run(&["config", "show", "--json"]);
    let effective = world.run(&["config", "show", "--effective", "--json"]);
    assert_eq!(defaults.json(), effective.json());
}

#[test]
fn flags_override_the_environment_which_overrides_the_file() {
    let world = World::new();
    world.write("my.toml", "data = \"file\"\n[log]\nlevel = \"warn\"\n");
    let show = ["config", "show", "--effective", "--json"];
    let by_file = world.run_with("ADMIT_CONFIG", "my.toml", &show).json();
    assert_eq!((&by_file["data"], &by_file["log"]["level"]), (&"file".into(), &"warn".into()));
    let with_file = [&show[..], &["--config", "my.toml"]].concat();
    let by_env = world.run_with("ADMIT_DATA", "env", &with_file).json();
    assert_eq!((&by_env["data"], &by_env["log"]["level"]), (&"env".into(), &"warn".into()));
    let with_flag = [&with_file[..], &["--data", "flag"]].concat();
    assert_eq!(world.run_with("ADMIT_DATA", "env", &with_flag).json()["data"], "flag");
}

#[test]
fn no_command_shows_keys() {
    let world = World::new();
    world.write("my.toml", "[[principals]]\nname = \"arena\"\nkeys = [\"hush-hush-hush-hush\"]\n");
    for arguments in [
        &["config", "show", "--effective", "--config", "my.toml"][..],
        &["config", "show", "--effective", "--json", "--config", "my.toml"],
        &["config", "check", "my.toml"],
    ] {
        let output = world.run(arguments);
        assert_eq!(output.code, Some(0), "{}", output.err);
        assert!(!output.out.contains("hush") && !output.err.contains("hush"), "{arguments:?}");
    }
}

#[test]
fn an_invalid_config_is_refused_with_advice() {
    let world = World::new();
    world.write("bad.toml", "listen = \"127.0.0.1:0\"\n[log]\nlevle = \"info\"\n");
    let output = world.run(&["serve", "--config", "bad.toml"]);
    assert_eq!(output.code, Some(2));
    insta::assert_snapshot!(output.err, @r#"
    admit: bad.toml:3:1: unknown key `levle`; did you mean `level`?
      | levle = "info"
      | ^
    "#);
    let output = world.run(&["serve", "--config", "lost.toml"]);
    assert_eq!(output.code, Some(2));
    insta::assert_snapshot!(output.err, @"admit: cannot read the config lost.toml: No such file or directory (os error 2)");
    let output = world.run_with("ADMIT_LOG_LEVEL", "info", &["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(output.code, Some(2));
    insta::assert_snapshot!(output.err, @r"
    admit: ADMIT_LOG_LEVEL: unknown config key; did you mean ADMIT_LOG__LEVEL?
      `admit config show` lists all keys
    ");
    assert!(!world.path().join("admit-data").exists(), "nothing was touched");
}

#[test]
fn a_gate_without_principals_stays_on_this_machine() {
    let world = World::new();
    let output = world.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(output.code, Some(2));
    insta::assert_snapshot!(output.err, @r#"
    admit: listen 0.0.0.0:0 can be reached from other machines, but no principal is configured
      give each producer a key in the config:
        [[principals]]
        name = "arena-1"
        keys = ["file:arena-1.key"]
      or stay on this machine: --listen 127.0.0.1:0
    "#);
    assert!(!world.path().join("admit-data").exists(), "nothing was touched");
}
