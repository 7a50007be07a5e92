//! Who sends, as tokens prove it and receipts say it.

use admit_contracts::Contract as _;
use admit_contracts::ingestion_gate::policy::Policy;
use admit_contracts::ingestion_gate::service_token::{ServiceTokens, TokenError, sign};
use admit_contracts::ingestion_gate::{AuthMode, IngestionGate, Settings, actor_id};
use admit_core::json::Value;
use admit_core::{Entry, Principal};

use super::{door, envelope, submission};

#[test]
fn a_token_of_any_secret_is_believed_and_nothing_else_is() {
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
fn a_list_narrows_whom_a_secret_can_speak_for() {
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
fn a_principal_is_a_system_unless_it_says_what_it_is() {
    assert_eq!(actor_id("wsp"), "SYSTEM::wsp");
    assert_eq!(actor_id("SYSTEM::wsp"), "SYSTEM::wsp");
    assert_eq!(actor_id("HUMAN::ana"), "HUMAN::ana");
}

#[test]
fn the_mode_stands_on_the_receipt() {
    for (word, principal) in
        [("disabled", "local"), ("api_key", "wsp"), ("service_token", "HUMAN::ana")]
    {
        let auth_mode = AuthMode::parse(word).unwrap();
        let settings = Settings { auth_mode, ..Settings::default() };
        let gate = IngestionGate::new(settings, Policy::shipped()).unwrap();
        let mut submission = submission(envelope().to_string());
        submission.principal = Principal::new(principal);
        let Entry::Event(event) = gate.vet(&door(), submission) else { panic!("an event") };
        let actor = event.facts.get("actor").unwrap();
        let told = |name| actor.get(name).and_then(Value::as_str).map(str::to_owned);
        assert_eq!(told("auth_mode").as_deref(), Some(word));
        assert_eq!(told("principal").as_deref(), Some(principal));
        assert_eq!(told("actor_id"), Some(actor_id(principal)));
        assert_eq!(told("source_type").as_deref(), Some("SYSTEM"));
    }
}

#[test]
fn a_mode_that_is_none_of_ours_is_named_in_the_words_of_the_wire() {
    let said = |word| AuthMode::parse(word).unwrap_err().to_string();
    assert!(said("jwt").starts_with("AUTH_MODE_UNSUPPORTED"));
    assert!(said("magic").starts_with("AUTH_MODE_UNKNOWN"));
}

#[test]
fn a_setting_that_receipts_cannot_carry_is_refused_at_the_start() {
    let settings = Settings { environment: String::new(), ..Settings::default() };
    let error = IngestionGate::new(settings, Policy::shipped()).unwrap_err();
    assert!(error.to_string().starts_with("environment must not be empty"));
}
