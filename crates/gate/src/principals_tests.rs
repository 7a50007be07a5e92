//! Tests of the configuration of principals.

use admit_core::hash::sha256_hex;

use super::*;

fn config(json: &str) -> PrincipalConfig {
    serde_json::from_str(json).unwrap()
}

fn load(configs: &[PrincipalConfig]) -> Result<Principals, PrincipalsError> {
    Principals::load(configs, Path::new("."))
}

fn name_of(principals: &Principals, key: &str) -> Option<String> {
    principals.by_key(key.as_bytes()).map(|known| known.principal.to_string())
}

#[test]
fn a_key_is_accepted_in_each_of_its_three_forms() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("key"), "from-a-file\n").unwrap();
    fs::write(folder.path().join("hash"), format!("sha256:{}\n", sha256_hex(b"hashed-file")))
        .unwrap();
    let hashed = format!("sha256:{}", sha256_hex(b"hashed").to_uppercase());
    let keys = ["literal", &hashed, "file:key", "file:hash"].map(str::to_owned).to_vec();
    let one = PrincipalConfig { keys, ..config(r#"{"name":"a","keys":["k"]}"#) };
    let principals = Principals::load(&[one], folder.path()).unwrap();
    for key in ["literal", "hashed", "from-a-file", "hashed-file"] {
        assert_eq!(name_of(&principals, key).as_deref(), Some("a"), "{key}");
    }
    for key in ["", "literal ", "Literal", &hashed, "file:key"] {
        assert_eq!(name_of(&principals, key), None, "{key}");
    }
}

#[test]
fn both_keys_work_while_one_is_being_rotated() {
    let principals = load(&[
        config(r#"{"name":"a","keys":["a-old","a-new"]}"#),
        config(r#"{"name":"b","keys":["b-only"]}"#),
    ])
    .unwrap();
    assert_eq!(name_of(&principals, "a-old").as_deref(), Some("a"));
    assert_eq!(name_of(&principals, "a-new").as_deref(), Some("a"));
    assert_eq!(name_of(&principals, "b-only").as_deref(), Some("b"));
}

#[test]
fn one_role_or_several_can_be_given_and_only_operate_contains_another() {
    let roles = |json| serde_json::from_str::<Roles>(json);
    assert_eq!(roles(r#""operate""#).unwrap(), Roles::of(&[Role::Operate]));
    assert!(roles(r#""operate""#).unwrap().contain(Role::Read));
    assert!(!roles(r#""operate""#).unwrap().contain(Role::Produce));
    assert!(!roles(r#""produce""#).unwrap().contain(Role::Read));
    assert_eq!(roles(r#"["produce","read"]"#).unwrap(), Roles::of(&[Role::Read, Role::Produce]));
    assert_eq!(config(r#"{"name":"a","keys":["k"]}"#).role, Roles::of(&[Role::Produce]));
    for wrong in [r#""admin""#, "[]", r#"["read","write"]"#, "7"] {
        assert!(roles(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_principal_limited_to_doors_uses_no_other() {
    let principals =
        load(&[config(r#"{"name":"a","keys":["k"],"doors":["events/orders"]}"#)]).unwrap();
    let known = principals.by_key(b"k").unwrap();
    assert!(known.may_use(&Door::new("events/orders")));
    assert!(!known.may_use(&Door::new("events")));
    assert_eq!(principals.doors_named().collect::<Vec<_>>(), [("a", "events/orders")]);
}

#[test]
fn ambiguous_names_are_refused() {
    for name in ["", ".", "..", "a:b", "a b", "a/b", "ä", &"x".repeat(129)] {
        let wrong = PrincipalConfig {
            name: name.to_owned(),
            keys: vec!["k".to_owned()],
            doors: Vec::new(),
            role: Roles::default(),
            may_speak_for: Vec::new(),
        };
        assert!(matches!(load(&[wrong]), Err(PrincipalsError::Name(_))), "{name}");
    }
}

#[test]
fn one_name_or_one_key_for_two_principals_is_refused() {
    let a = || config(r#"{"name":"a","keys":["k"]}"#);
    assert!(matches!(load(&[a(), a()]), Err(PrincipalsError::NameTwice(_))));
    let b = PrincipalConfig { name: "b".to_owned(), ..a() };
    assert!(matches!(load(&[a(), b]), Err(PrincipalsError::KeyTwice(_, _))));
    let twice = PrincipalConfig { keys: vec!["k".to_owned(), "k".to_owned()], ..a() };
    assert!(load(&[twice]).is_ok(), "the same key twice under one name is harmless");
}

#[test]
fn unusable_keys_are_refused() {
    let keys = |keys: &[&str]| PrincipalConfig {
        keys: keys.iter().copied().map(str::to_owned).collect(),
        ..config(r#"{"name":"a","keys":[]}"#)
    };
    assert!(matches!(load(&[keys(&[])]), Err(PrincipalsError::NoKeys(_))));
    assert!(matches!(load(&[keys(&[""])]), Err(PrincipalsError::Key(_))));
    assert!(matches!(load(&[keys(&["a b"])]), Err(PrincipalsError::Key(_))));
    assert!(matches!(load(&[keys(&["sha256:12"])]), Err(PrincipalsError::Sha256(_))));
    assert!(matches!(load(&[keys(&["file:no/such"])]), Err(PrincipalsError::KeyFile { .. })));
}

#[test]
fn only_principals_that_can_send_share_the_limits() {
    let one = [
        r#"{"name": "shop", "keys": ["a"]}"#,
        r#"{"name": "scraper", "keys": ["b"], "role": "metrics"}"#,
        r#"{"name": "ops", "keys": ["c"], "role": "operate"}"#,
    ];
    let agent = r#"{"name": "agent", "keys": ["d"], "role": "forward", "may_speak_for": ["shop"]}"#;
    let has_several_senders = |tables: &[&str]| {
        let configs: Vec<_> = tables.iter().map(|table| config(table)).collect();
        load(&configs).unwrap().has_several_senders(&[])
    };
    assert!(!has_several_senders(&one));
    assert!(has_several_senders(&[one[0], one[1], agent]));
    let configs: Vec<_> = one.iter().map(|table| config(table)).collect();
    assert!(load(&configs).unwrap().has_several_senders(&["scraper"]), "it signs");
    assert!(!Principals::open().has_several_senders(&[]));
}

#[test]
fn keys_are_never_printed() {
    let secret = config(r#"{"name":"a","keys":["hunter2"]}"#);
    let shown = format!("{secret:?} {:?}", load(std::slice::from_ref(&secret)).unwrap());
    assert!(!shown.contains("hunter2"), "{shown}");
    let wrong = PrincipalConfig { keys: vec!["hunter2 ".to_owned()], ..secret };
    assert!(!load(&[wrong]).unwrap_err().to_string().contains("hunter2"));
}

#[test]
fn without_principals_the_gate_is_open() {
    let principals = load(&[]).unwrap();
    assert!(principals.is_open());
    let local = principals.local().unwrap();
    assert_eq!(local.principal.as_str(), LOCAL);
    assert!(local.has(Role::Produce) && local.has(Role::Read) && local.has(Role::Operate));
    assert!(local.has(Role::Consume) && local.has(Role::Metrics));
    assert!(!local.has(Role::Forward));
    assert!(principals.by_key(b"").is_none());
}

#[test]
fn a_role_contains_its_documented_roles_only() {
    let contains = |role: Role| {
        Role::ALL.into_iter().filter(|other| Roles::of(&[role]).contain(*other)).collect::<Vec<_>>()
    };
    assert_eq!(contains(Role::Produce), [Role::Produce]);
    assert_eq!(contains(Role::Read), [Role::Read, Role::Metrics]);
    assert_eq!(contains(Role::Consume), [Role::Consume]);
    assert_eq!(contains(Role::Metrics), [Role::Metrics]);
    assert_eq!(contains(Role::Forward), [Role::Forward]);
    let operate = [Role::Read, Role::Operate, Role::Consume, Role::Metrics];
    assert_eq!(contains(Role::Operate), operate);
}

#[test]
fn read_may_claim_while_no_principal_has_the_role_consume() {
    let reader = || config(r#"{"name":"r","keys":["r"],"role":"read"}"#);
    let other = |name: &str, doors: &str| {
        config(&format!(r#"{{"name":"{name}","keys":["{name}"],"role":"read","doors":[{doors}]}}"#))
    };
    let doors = [other("s", r#""events/orders""#), other("p", r#""pixel-control""#), reader()];
    let before = load(&doors).unwrap();
    assert!(before.by_key(b"r").unwrap().has(Role::Consume));
    assert_eq!(
        before.consumers_by_read().collect::<Vec<_>>(),
        ["s", "r"],
        "p has nothing to claim"
    );
    let consumer = config(r#"{"name":"c","keys":["c"],"role":"consume"}"#);
    let after = load(&[reader(), consumer]).unwrap();
    assert!(!after.by_key(b"r").unwrap().has(Role::Consume));
    assert!(!after.by_key(b"c").unwrap().has(Role::Read));
    assert_eq!(after.consumers_by_read().count(), 0);
}

#[test]
fn the_role_forward_requires_may_speak_for() {
    let agent = r#"{"name":"edge-1","keys":["k"],"role":"forward","may_speak_for":["arena-1"]}"#;
    let principals = load(&[config(agent)]).unwrap();
    let known = principals.by_key(b"k").unwrap();
    assert!(known.may_speak_for("arena-1"));
    assert!(!known.may_speak_for("arena-2") && !known.may_speak_for("edge-1"));
    for wrong in [
        r#"{"name":"a","keys":["k"],"role":"forward"}"#,
        r#"{"name":"a","keys":["k"],"may_speak_for":["b"]}"#,
    ] {
        assert!(matches!(load(&[config(wrong)]), Err(PrincipalsError::Forward(_))), "{wrong}");
    }
    let unnamed = r#"{"name":"a","keys":["k"],"role":"forward","may_speak_for":["*"]}"#;
    assert!(matches!(load(&[config(unnamed)]), Err(PrincipalsError::Name(_))));
}
