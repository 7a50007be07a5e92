//! Authentication modes, service tokens, and the sender on receipts.

use admit_contracts::Contract as _;
use admit_contracts::ingestion_gate::policy::IngestionPolicy;
use admit_contracts::ingestion_gate::service_token::{ServiceTokens, TokenError, sign};
use admit_contracts::ingestion_gate::{AuthMode, IngestionGate, Settings, actor_id};
use admit_core::json::Value;
use admit_core::{Entry, Principal};

use super::{door, envelope, submission};

#[test]
fn a_token_of_any_configured_secret_is_accepted_and_nothing_else_is() {
    let tokens = ServiceTokens::new(["old", "new"], [""; 0]);
    for secret in ["old", "new"] {
        assert_eq!(tokens.verify(&sign(secret.as_bytes(), "wsp")), Ok("wsp".to_owned()));
    }
    let good = sign(b"new", "wsp");
    let (head, signature) = good.rsplit_once('.').unwrap();
    for bad in [
        sign(b"other", "wsp"),
        sign(b"", "wsp"),
        sign(b"new", ""),
        sign(b"new", "two words"),
        sign(b"new", &"x".repeat(200)),
        good.replace("v1", "v2"),
        good.to_uppercase(),
        format!("{head}.{}", signature.to_uppercase()),
        format!("{head}.{}", &signature[..62]),
        format!("{good}.x"),
        format!("{head}=.{signature}"),
        head.to_owned(),
        String::new(),
        "wsp".to_owned(),
    ] {
        assert_eq!(tokens.verify(&bad), Err(TokenError::Unauthorized), "{bad}");
    }
}

#[test]
fn an_allow_list_restricts_the_principals_of_a_secret() {
    let tokens = ServiceTokens::new(["s"], ["wsp", "SYSTEM::df", "HUMAN::ana"]);
    for (principal, is_listed) in
        [("wsp", true), ("df", true), ("SYSTEM::df", true), ("HUMAN::ana", true), ("ana", false)]
    {
        assert_eq!(tokens.verify(&sign(b"s", principal)).is_ok(), is_listed, "{principal}");
    }
}

#[test]
fn without_a_secret_no_token_can_be_verified_and_none_is_shown() {
    let none = ServiceTokens::new([""], [""; 0]);
    assert_eq!(none.verify(&sign(b"", "wsp")), Err(TokenError::SecretMissing));
    assert_eq!(TokenError::SecretMissing.as_str(), "AUTH_SERVICE_TOKEN_SECRET_MISSING");
    let shown = format!("{:?}", ServiceTokens::new(["hush"], [""; 0]));
    assert!(!shown.contains("hush"), "{shown}");
}

#[test]
fn a_principal_without_a_kind_prefix_is_a_system() {
    assert_eq!(actor_id("wsp"), "SYSTEM::wsp");
    assert_eq!(actor_id("SYSTEM::wsp"), "SYSTEM::wsp");
    assert_eq!(actor_id("HUMAN::ana"), "HUMAN::ana");
}

#[test]
fn the_auth_mode_is_on_the_receipt() {
    for (word, principal) in
        [("disabled", "local"), ("api_key", "wsp"), ("service_token", "HUMAN::ana")]
    {
        let auth_mode = AuthMode::parse(word).unwrap();
        let settings = Settings { auth_mode, ..Settings::default() };
        let gate = IngestionGate::new(settings, IngestionPolicy::shipped()).unwrap();
        let mut submission = submission(envelope().to_string());
        submission.principal = Principal::new(principal);
        let Entry::Event(event) = gate.vet(&door(), submission) else { panic!("an event") };
        let actor = event.facts.get("actor").unwrap();
        let field = |name| actor.get(name).and_then(Value::as_str).map(str::to_owned);
        assert_eq!(field("auth_mode").as_deref(), Some(word));
        assert_eq!(field("principal").as_deref(), Some(principal));
        assert_eq!(field("actor_id"), Some(actor_id(principal)));
        assert_eq!(field("source_type").as_deref(), Some("SYSTEM"));
    }
}

#[test]
fn an_unknown_auth_mode_is_refused_with_its_wire_code() {
    let message = |word| AuthMode::parse(word).unwrap_err().to_string();
    assert!(message("jwt").starts_with("AUTH_MODE_UNSUPPORTED"));
    assert!(message("magic").starts_with("AUTH_MODE_UNKNOWN"));
}

#[test]
fn an_empty_setting_is_refused_at_start() {
    let settings = Settings { environment: String::new(), ..Settings::default() };
    let error = IngestionGate::new(settings, IngestionPolicy::shipped()).unwrap_err();
    assert!(error.to_string().starts_with("environment must not be empty"));
}
