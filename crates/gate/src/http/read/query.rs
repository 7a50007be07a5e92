//! The query of a list: which door, whose, after what, how many.

use std::sync::Arc;

use admit_core::{Code, ReceiptId, Seq};
use axum::body::to_bytes;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::Bytes;
use http::request::Parts;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::Routed;
use crate::gate::Gate;
use crate::http::answer;

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;

/// How many rows were asked for.
pub(in crate::http) fn rows(limit: Option<usize>) -> Result<usize, String> {
    match limit.unwrap_or(LIMIT_DEFAULT) {
        limit @ 1..=LIMIT_MAX => Ok(limit),
        _ => Err(format!("limit must be 1 to {LIMIT_MAX}")),
    }
}

/// The query of one receipt.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct ReceiptQuery {
    /// The door whose own id is asked for.
    pub(super) door: Option<String>,
    /// The run it is of.
    pub(super) run: Option<String>,
}

/// The query of a list of receipts.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct ReceiptsQuery {
    pub(super) door: Option<String>,
    pub(super) principal: Option<String>,
    /// One or several verdicts, with commas between.
    pub(super) verdict: Option<String>,
    /// A receipt id, or a place in the ledger.
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

/// The query of a list of read models.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct DocumentsQuery {
    /// The `next` of the page before.
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

/// The query of a list of ambiguous publishes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct DoubtsQuery {
    /// Only of this run.
    pub(in crate::http) run: Option<String>,
    /// A receipt id, or a place in the ledger.
    pub(in crate::http) after: Option<String>,
    pub(in crate::http) limit: Option<usize>,
}

/// The query of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct StreamQuery {
    /// A receipt id, or a place in the ledger; left out, the stream is read from its start.
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
    /// How long to wait for something when there is nothing, in milliseconds.
    pub(super) wait_ms: Option<u64>,
}

/// The query of the inbox.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct InboxQuery {
    pub(super) status: Option<String>,
    /// The `next_after` of the page before.
    pub(super) after: Option<u64>,
    pub(super) limit: Option<usize>,
}

/// The place after which to list.
pub(in crate::http) fn after(text: Option<&str>, ledger: u32) -> Result<Seq, String> {
    let Some(text) = text else { return Ok(Seq::default()) };
    if let Ok(seq) = text.parse() {
        return Ok(Seq(seq));
    }
    match text.parse::<ReceiptId>() {
        Ok(id) if id.ledger == ledger => Ok(id.seq),
        Ok(_) => Err("after names a receipt of another ledger".to_owned()),
        Err(error) => Err(format!("after cannot be read: {error}")),
    }
}

/// The verdicts that were asked for, each of which must be `allowed`; all of those if none was.
pub(super) fn verdicts(text: Option<&str>, allowed: &[&str]) -> Result<Vec<String>, String> {
    let asked = match text {
        None => allowed.to_vec(),
        Some(text) => text.split(',').map(str::trim).collect(),
    };
    match asked.iter().find(|word| !allowed.contains(word)) {
        None => Ok(asked.into_iter().map(str::to_owned).collect()),
        Some(_) => Err(format!("verdict must be of {}", allowed.join(", "))),
    }
}

/// A query, or a typed refusal that says what is wrong with it.
pub(in crate::http) struct Asked<Q>(pub(in crate::http) Q);

impl<Q: DeserializeOwned> FromRequestParts<Arc<Gate>> for Asked<Q> {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        match Query::<Q>::try_from_uri(&head.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(error) => {
                let message = format!("the query cannot be read: {}", error.body_text());
                Err(invalid(gate, &message))
            }
        }
    }
}

/// The names in a path, or a typed refusal when they are not text.
pub(in crate::http) struct Named<T>(pub(in crate::http) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Gate>> for Named<T> {
    type Rejection = Routed;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, Routed> {
        match Path::<T>::from_request_parts(head, gate).await {
            Ok(Path(names)) => Ok(Self(names)),
            Err(_) => Err(invalid(gate, "the path cannot be read: it is not UTF-8")),
        }
    }
}

/// The body of a request, whole, or a typed refusal.
pub(in crate::http) struct Sent(pub(in crate::http) Bytes);

impl FromRequest<Arc<Gate>> for Sent {
    type Rejection = Routed;

    async fn from_request(request: Request, gate: &Arc<Gate>) -> Result<Self, Routed> {
        let reading = to_bytes(request.into_body(), gate.limits.body_bytes_max);
        match timeout(gate.limits.body_read_max(), reading).await {
            Ok(Ok(body)) => Ok(Self(body)),
            Ok(Err(_)) => {
                let message = "the body is larger than this gate takes, or broke off";
                Err(Routed(answer::refuse(gate, Code::BodyTooLarge, message)))
            }
            Err(_) => {
                let message = "the body did not arrive in time";
                Err(Routed(answer::refuse(gate, Code::RequestTimeout, message)))
            }
        }
    }
}

pub(in crate::http) fn invalid(gate: &Gate, message: &str) -> Routed {
    Routed(answer::refuse(gate, Code::InvalidRequest, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_takes_a_place_or_a_receipt_of_this_ledger() {
        assert_eq!(after(None, 7), Ok(Seq(0)));
        assert_eq!(after(Some("42"), 7), Ok(Seq(42)));
        assert_eq!(after(Some("rcp-00000007-42"), 7), Ok(Seq(42)));
        assert!(after(Some("rcp-00000008-42"), 7).is_err());
        assert!(after(Some("yesterday"), 7).is_err());
    }

    #[test]
    fn only_verdicts_that_are_listed_can_be_asked_for() {
        let allowed = ["conflict", "refused"];
        assert_eq!(verdicts(None, &allowed).unwrap(), allowed);
        assert_eq!(verdicts(Some("refused, conflict"), &allowed).unwrap(), ["refused", "conflict"]);
        assert!(verdicts(Some("fresh"), &allowed).is_err());
        assert!(verdicts(Some(""), &allowed).is_err());
    }

    #[test]
    fn a_page_has_a_limit() {
        assert_eq!(rows(None), Ok(LIMIT_DEFAULT));
        assert_eq!(rows(Some(LIMIT_MAX)), Ok(LIMIT_MAX));
        assert!(rows(Some(0)).is_err() && rows(Some(LIMIT_MAX + 1)).is_err());
    }
}
