//! `admit config`, and configs that a gate must refuse.

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
fn the_reference_config_says_what_a_gate_does_without_one() {
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
fn file_environment_and_flags_win_in_that_order() {
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
fn keys_are_shown_by_no_command() {
    let world = World::new();
    world.write("my.toml", "[[principals]]\nname = \"arena\"\nkeys = [\"hush-hush-hush-hush\"]\n");
    for arguments in [
        &["config", "show", "--effective", "--config", "my.toml"][..],
        &["config", "show", "--effective", "--json", "--config", "my.toml"],
        &["config", "check", "my.toml"],
    ] {
        let said = world.run(arguments);
        assert_eq!(said.code, Some(0), "{}", said.err);
        assert!(!said.out.contains("hush") && !said.err.contains("hush"), "{arguments:?}");
    }
}

#[test]
fn a_gate_refuses_a_config_it_cannot_trust_and_says_what_to_do() {
    let world = World::new();
    world.write("bad.toml", "listen = \"127.0.0.1:0\"\n[log]\nlevle = \"info\"\n");
    let said = world.run(&["serve", "--config", "bad.toml"]);
    assert_eq!(said.code, Some(2));
    insta::assert_snapshot!(said.err, @r#"
    admit: bad.toml:3:1: unknown key `levle`, the nearest one is `level`
      | levle = "info"
      | ^
    "#);
    let said = world.run(&["serve", "--config", "lost.toml"]);
    assert_eq!(said.code, Some(2));
    insta::assert_snapshot!(said.err, @"admit: cannot read the config lost.toml: No such file or directory (os error 2)");
    let said = world.run_with("ADMIT_LOG_LEVEL", "info", &["serve", "--listen", "127.0.0.1:0"]);
    assert_eq!(said.code, Some(2));
    insta::assert_snapshot!(said.err, @r"
    admit: ADMIT_LOG_LEVEL names no config key, the nearest one is ADMIT_LOG__LEVEL
      `admit config show` lists all keys
    ");
    assert!(!world.path().join("admit-data").exists(), "nothing was touched");
}

#[test]
fn a_gate_without_principals_stays_on_this_machine() {
    let world = World::new();
    let said = world.run(&["serve", "--listen", "0.0.0.0:0"]);
    assert_eq!(said.code, Some(2));
    insta::assert_snapshot!(said.err, @r#"
    admit: listen 0.0.0.0:0 can be reached from other machines, but no principal is configured
      give each producer a key in the config:
        [[principals]]
        name = "arena-1"
        keys = ["file:arena-1.key"]
      or stay on this machine: --listen 127.0.0.1:0
    "#);
    assert!(!world.path().join("admit-data").exists(), "nothing was touched");
}
