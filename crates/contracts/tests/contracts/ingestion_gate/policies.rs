//! Policy files: valid content, errors with their location, and the digest.

use admit_contracts::ingestion_gate::policy::{
    IngestionPolicy, PolicyFile, PolicyFiles, schema_paths, shipped_files,
};
use serde_json::Value;

/// Policy without payload schemas.
pub(crate) fn files_with(class_map: &str, schema_policy: &str, partitioning: &str) -> PolicyFiles {
    let file = |path: &str, text: &str| PolicyFile::new(path, text.to_owned());
    PolicyFiles {
        class_map: file("class_map.yaml", class_map),
        schema_policy: file("schema_policy.yaml", schema_policy),
        partitioning: file("partitioning.yaml", partitioning),
        schemas: Vec::new(),
    }
}

const CLASSES: &str = "version: v0
classes:
  traffic:
    required_pins: [platform_run_id]
event_types:
  ping: traffic
";

const SCHEMAS: &str = "version: v0
default_action: quarantine
policies:
  - event_type: ping
    class: traffic
";

const PROFILES: &str = "version: v0
profiles:
  ig.partitioning.v0.traffic:
    stream: pings
    key_precedence: [event_id]
    hash_algo: sha256
";

fn small() -> PolicyFiles {
    files_with(CLASSES, SCHEMAS, PROFILES)
}

/// Errors of the small policy with one text in one file replaced.
fn errors(replace: &str, with: &str) -> Vec<String> {
    let swap = |text: &str| {
        if text.contains(replace) { text.replacen(replace, with, 1) } else { text.to_owned() }
    };
    let files = files_with(&swap(CLASSES), &swap(SCHEMAS), &swap(PROFILES));
    match IngestionPolicy::load(&files) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.to_string().lines().map(str::to_owned).collect(),
    }
}

#[test]
fn the_shipped_policy_loads_and_warns_of_nothing() {
    let policy = IngestionPolicy::shipped();
    assert_eq!(policy.warnings(), [""; 0]);
    // As computed by CPython with its usual YAML parser. Existing receipts contain it.
    let digest = "9df05b115e1278b1a8a1ce5e8a75459c5218fe601a6251082fd3471601ab0a13";
    assert_eq!(policy.digest(), digest);
    assert_eq!(policy.class_of("decision_response"), "rtdl_decision");
    assert_eq!(policy.class_of("ig.audit.verify"), "audit");
    assert_eq!(policy.class_of("unmapped"), "traffic");
    assert_eq!(policy.required_pins("traffic").len(), 7);
    assert_eq!(policy.required_pins("case_trigger").len(), 6);
    assert_eq!(policy.required_pins("control").len(), 4);
    assert_eq!(policy.required_pins("audit").len(), 3);
    insta::assert_snapshot!(policy.topics().join("\n"), @r"
    fp.bus.audit.v1
    fp.bus.case.v1
    fp.bus.context.arrival_entities.v1
    fp.bus.context.arrival_events.v1
    fp.bus.context.flow_anchor.baseline.v1
    fp.bus.context.flow_anchor.fraud.v1
    fp.bus.control.v1
    fp.bus.rtdl.v1
    fp.bus.traffic.baseline.v1
    fp.bus.traffic.fraud.v1
    fp.bus.traffic.v1
    ");
}

#[test]
fn the_schemas_that_a_policy_references_are_listed() {
    let files = shipped_files();
    let named = schema_paths(&files.schema_policy).unwrap();
    let shipped: Vec<String> = files.schemas.iter().map(|file| file.path.clone()).collect();
    assert_eq!(named, shipped);
}

#[test]
fn every_error_names_its_file_and_line() {
    for (replace, with, expected) in [
        (
            "required_pins: [platform_run_id]",
            "required_pins: [seeed]",
            "class_map.yaml:4: seeed is not a pin",
        ),
        ("required_pins:", "pins:", "class_map.yaml:4: class traffic has no key \"pins\""),
        ("ping: traffic", "ping: trafic", "class_map.yaml:6: ping is mapped to class trafic"),
        ("event_types:", "types:", "class_map.yaml:5: the class map has no key \"types\""),
        ("  traffic:\n", "  traffik:\n", "class_map.yaml:3: there is no class traffic"),
        (
            "default_action: quarantine",
            "default_action: admit",
            "schema_policy.yaml:2: default_action",
        ),
        ("    class: traffic", "    class: audit", "schema_policy.yaml:5: class audit is not in"),
        (
            "- event_type: ping",
            "- event_type: 7",
            "schema_policy.yaml:4: event_type must be a text",
        ),
        (
            "class: traffic\n",
            "class: traffic\n    schema_version_required: v1\n",
            "schema_policy.yaml:6: schema_version_required",
        ),
        (
            "class: traffic\n",
            "class: traffic\n    payload_schema_ref: a.json\n",
            "schema_policy.yaml:6: the payload schema a.json is missing",
        ),
        ("stream: pings", "stream: ../pings", "partitioning.yaml:4: a stream has letters"),
        ("[event_id]", "[evnt_id]", "partitioning.yaml:5: evnt_id is neither a field"),
        ("[event_id]", "[]", "partitioning.yaml:5: key_precedence must name a field"),
        (
            "v0.traffic:",
            "v0.trafic:",
            "partitioning.yaml:3: there is no profile ig.partitioning.v0.traffic",
        ),
        ("hash_algo: sha256", "hash_algo: on", "partitioning.yaml:6: on is ambiguous in YAML"),
        (
            "    stream: pings\n",
            "    stream: pings\n    stream: pongs\n",
            "partitioning.yaml:5: \"stream\" appears twice",
        ),
    ] {
        let found = errors(replace, with);
        assert!(found.iter().any(|line| line.starts_with(expected)), "{with}: {found:#?}");
    }
    assert_eq!(errors("nothing", ""), [""; 0]);
}

#[test]
fn all_errors_are_reported_at_once() {
    let files = files_with(
        &CLASSES.replace("platform_run_id", "x"),
        &SCHEMAS.replace("ping", "pong").replace("class: traffic", "class: audit"),
        &PROFILES.replace("event_id", "nowhere"),
    );
    let errors = IngestionPolicy::load(&files).unwrap_err().0;
    let files: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
    for file in ["class_map.yaml", "schema_policy.yaml", "partitioning.yaml"] {
        assert!(files.contains(&file), "{files:?}");
    }
}

#[test]
fn the_classes_of_the_two_files_may_not_contradict_each_other() {
    let found = errors("  - event_type: ping", "  - event_type: pong");
    assert_eq!(found, [""; 0], "an unmapped type belongs to traffic");
    let classes = format!("{CLASSES}  pong: traffic\n")
        .replace("event_types:", "  other:\n    required_pins: []\nevent_types:");
    let schemas = SCHEMAS.replace("class: traffic", "class: other");
    let errors = IngestionPolicy::load(&files_with(&classes, &schemas, PROFILES)).unwrap_err();
    let expected = "schema_policy.yaml:5: the class map maps ping to class traffic, not other";
    assert_eq!(errors.to_string(), expected);
}

#[test]
fn the_decision_loop_must_be_configured_completely() {
    let shipped = shipped_files();
    let text = |file: &PolicyFile| String::from_utf8(file.bytes.to_vec()).unwrap();
    let (classes, schemas) = (text(&shipped.class_map), text(&shipped.schema_policy));
    let load = |classes: &str, schemas: &str| {
        let mut files = shipped.clone();
        files.class_map.bytes = classes.to_owned().into();
        files.schema_policy.bytes = schemas.to_owned().into();
        IngestionPolicy::load(&files).map_err(|errors| errors.to_string())
    };
    assert!(load(&classes, &schemas).is_ok());
    let failed = |classes: &str, schemas: &str| {
        let errors = load(classes, schemas).unwrap_err();
        assert!(errors.contains("IG_RTLD_POLICY_ALIGNMENT_FAILED"), "{errors}");
    };
    let drop_entry = |schemas: &str, event_type: &str| {
        let from = schemas.find(&format!("  - event_type: {event_type}\n")).unwrap();
        let length = schemas[from + 4..].find("  - ").map_or(schemas.len() - from, |end| end + 4);
        format!("{}{}", &schemas[..from], &schemas[from + length..])
    };
    failed(&classes, &drop_entry(&schemas, "action_intent"));
    let rtdl = "  rtdl_decision:\n    required_pins: [platform_run_id, ";
    failed(&classes.replace(rtdl, &format!("{rtdl}run_id, ")), &schemas);
    failed(&classes.replace(rtdl, "  rtdl_decision:\n    required_pins: ["), &schemas);
    failed(
        &classes,
        &schemas.replacen("schema_version_required: true", "schema_version_required: false", 1),
    );
    failed(
        &classes,
        &schemas.replacen("allowed_schema_versions: [v1]", "allowed_schema_versions: [v2]", 1),
    );
    let mut none = (classes.clone(), schemas.clone());
    for event_type in ["decision_response", "action_intent", "action_outcome"] {
        let line = none.0.lines().find(|line| line.starts_with(&format!("  {event_type}:")));
        let line = format!("{}\n", line.unwrap());
        none.0 = none.0.replace(&line, "");
        none.1 = drop_entry(&none.1, event_type);
    }
    assert!(load(&none.0, &none.1).is_ok(), "none of them at all is fine");
}

#[test]
fn the_digest_covers_content_and_path_spelling_and_nothing_else() {
    let digest = |files: &PolicyFiles| IngestionPolicy::load(files).unwrap().digest().to_owned();
    let plain = digest(&small());
    let with = |change: &dyn Fn(&mut PolicyFiles)| {
        let mut files = small();
        change(&mut files);
        digest(&files)
    };
    let set = |file: &mut PolicyFile, text: String| file.bytes = text.into();
    let formatted = PROFILES.replace("[event_id]", "\n      - 'event_id'  # why");
    assert_eq!(plain, with(&|f| set(&mut f.partitioning, format!("# by ana\n{formatted}"))));
    let reordered = format!("{}version: v0\n", CLASSES.trim_start_matches("version: v0\n"));
    assert_eq!(plain, with(&|f| set(&mut f.class_map, reordered.clone())));
    assert_ne!(plain, with(&|f| set(&mut f.partitioning, PROFILES.replace("pings", "pongs"))));
    assert_ne!(plain, with(&|f| set(&mut f.class_map, CLASSES.replace("v0", "v1"))));
    assert_ne!(plain, with(&|f| f.class_map.path = "./class_map.yaml".to_owned()));
}

#[test]
fn yaml_and_json_of_the_same_policy_have_the_same_digest() {
    let mut files = small();
    let plain = IngestionPolicy::load(&files).unwrap().digest().to_owned();
    // The path decides the parser and is part of the digest; this path implies neither format.
    let mut as_yaml = files.clone();
    as_yaml.class_map.path = "class_map".to_owned();
    files.class_map.path = "class_map".to_owned();
    files.class_map.bytes = r#"{"version":"v0","event_types":{"ping":"traffic"},
            "classes":{"traffic":{"required_pins":["platform_run_id"]}}}"#
        .into();
    let digest = |files: &PolicyFiles| IngestionPolicy::load(files).unwrap().digest().to_owned();
    assert_eq!(digest(&files), digest(&as_yaml));
    assert_ne!(digest(&files), plain);
    let by_hand = {
        use admit_core::hash::sha256_hex;
        let list = [
            (
                "class_map",
                r#"{"classes":{"traffic":{"required_pins":["platform_run_id"]}},"event_types":{"ping":"traffic"},"version":"v0"}"#,
            ),
            (
                "partitioning.yaml",
                r#"{"profiles":{"ig.partitioning.v0.traffic":{"hash_algo":"sha256","key_precedence":["event_id"],"stream":"pings"}},"version":"v0"}"#,
            ),
            (
                "schema_policy.yaml",
                r#"{"default_action":"quarantine","policies":[{"class":"traffic","event_type":"ping"}],"version":"v0"}"#,
            ),
        ];
        let all: Vec<Value> = list
            .iter()
            .map(|(path, content)| serde_json::json!({ "content": content, "path": path }))
            .collect();
        sha256_hex(Value::from(all).to_string().as_bytes())
    };
    assert_eq!(digest(&files), by_hand);
}

#[test]
fn an_unreadable_file_is_reported_with_its_line() {
    for (path, text, expected) in [
        ("a.json", "{\n\"version\": 1,\n}", "a.json:3: "),
        ("a.json", "version: v0", "a.json:1: "),
        ("a.yaml", "version: v0\nclasses: [", "a.yaml:"),
        ("a.yml", "", "a.yml:1: the file is empty"),
        ("a", "{\"version\": \"v0\",\n \"version\": 1}", "a:2: \"version\" appears twice"),
    ] {
        let mut files = small();
        files.class_map = PolicyFile::new(path, text.to_owned());
        let errors = IngestionPolicy::load(&files).unwrap_err().to_string();
        assert!(errors.starts_with(expected), "{errors}");
    }
    let mut files = small();
    files.class_map.bytes = b"a: 1\nb: \xff".as_slice().into();
    assert_eq!(
        IngestionPolicy::load(&files).unwrap_err().to_string(),
        "class_map.yaml:2: not utf-8"
    );
}

#[test]
fn a_custom_class_can_have_a_custom_profile() {
    let classes = CLASSES.replace("event_types:", "  gold:\n    required_pins: []\nevent_types:");
    let classes = format!("{classes}  coin: gold\n");
    let profiles =
        format!("{PROFILES}  mine:\n    stream: coins\n    key_precedence: [event_id]\n");
    let load = |profiles: &str| {
        IngestionPolicy::load(&files_with(&classes, SCHEMAS, profiles)).map_err(|e| e.to_string())
    };
    assert_eq!(load(&profiles).unwrap().topics(), ["pings"]);
    let own = format!("{profiles}classes:\n  gold: mine\n");
    assert_eq!(load(&own).unwrap().topics(), ["coins", "pings"]);
    let odd = format!("{profiles}classes:\n  gold: yours\n  silver: mine\n");
    let errors = load(&odd).unwrap_err();
    assert!(errors.contains("there is no profile yours"), "{errors}");
    assert!(errors.contains("class silver does not exist"), "{errors}");
}
