//! The query of a list: which door, whose, after what, how many.

use std::sync::Arc;

use admit_core::{Code, ReceiptId, Seq};
use axum::body::Body;
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use bytes::{Bytes, BytesMut};
use http::request::Parts;
use http_body_util::BodyExt as _;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::{Requester, Routed};
use crate::gate::Gate;
use crate::http::answer;
use crate::request_permit::FULL;
use crate::room::Inside;

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
    pub(in crate::http) after: Option<String>,
    pub(in crate::http) limit: Option<usize>,
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
    /// The `next_after` of the page before, no larger than the ledger can count.
    pub(super) after: Option<i64>,
    pub(super) limit: Option<usize>,
}

/// The place after which to list.
pub(in crate::http) fn after(text: Option<&str>, ledger: u32) -> Result<Seq, String> {
    let Some(text) = text else { return Ok(Seq::default()) };
    if let Ok(seq) = text.parse() {
        return Ok(seq);
    }
    match text.parse::<ReceiptId>() {
        Ok(id) if id.ledger == ledger => Ok(id.seq),
        Ok(_) => Err("after names a receipt of another ledger".to_owned()),
        Err(error) => {
            Err(format!("after cannot be read: {error}, and a place in the ledger like 42"))
        }
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
            Err(_) => {
                let wrong = wrong_parameter::<Q>(head.uri.query().unwrap_or_default());
                Err(invalid(gate, &format!("the query cannot be read: {wrong}")))
            }
        }
    }
}

/// Longest part of a parameter that is repeated in a message, in characters.
const SHOWN_CHARS_MAX: usize = 64;

/// What is wrong with a query that cannot be read. Every parameter of every route may be left out, so
/// each is read alone to find the one at fault.
fn wrong_parameter<Q: DeserializeOwned>(query: &str) -> String {
    let fits = |pair: &str| {
        let uri = format!("/?{pair}").parse();
        uri.is_ok_and(|uri| Query::<Q>::try_from_uri(&uri).is_ok())
    };
    let shown = |text: &str| text.chars().take(SHOWN_CHARS_MAX).collect::<String>();
    let Some(pair) = query.split('&').find(|pair| !pair.is_empty() && !fits(pair)) else {
        return "a parameter is given more than once".to_owned();
    };
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    // A parameter that is there takes one of these, whatever its type is.
    match ["1", "true"].iter().any(|value| fits(&format!("{name}={value}"))) {
        true => format!("{} cannot be {:?}", shown(name), shown(value)),
        false => format!("there is no parameter {:?} here", shown(name)),
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
        let place = request.extensions().get::<Arc<Requester>>().and_then(|known| known.place());
        // A route whose body is read asks for a key before.
        let inside = place.and_then(|place| gate.room.enter(place, 0));
        let Some(mut inside) = inside else {
            return Err(Routed(answer::refuse(gate, FULL.code, FULL.message)));
        };
        let reading = read(request.into_body(), gate.limits.body_bytes_max, &mut inside);
        let refused = match timeout(gate.limits.body_read_max(), reading).await {
            Ok(Ok(body)) => return Ok(Self(body)),
            Ok(Err(refused)) => refused,
            Err(_) => (Code::RequestTimeout, "the body did not arrive in time"),
        };
        let (code, message) = refused;
        Err(Routed(answer::refuse(gate, code, message)))
    }
}

/// Reads a whole body of at most `bytes_max`; what arrives is reserved.
async fn read(
    mut body: Body,
    bytes_max: usize,
    inside: &mut Inside,
) -> Result<Bytes, (Code, &'static str)> {
    const UNUSABLE: (Code, &str) =
        (Code::BodyTooLarge, "the body is larger than this gate takes, or broke off");
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| UNUSABLE)?.into_data() else { continue };
        let length = whole.len() + data.len();
        if length > bytes_max {
            return Err(UNUSABLE);
        }
        if !inside.grow_to(length) {
            return Err((FULL.code, FULL.message));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
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
        for wrong in ["yesterday", "18446744073709551615", "rcp-00000007-9223372036854775808"] {
            assert!(after(Some(wrong), 7).is_err(), "{wrong}");
        }
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
    fn a_query_that_cannot_be_read_is_told_which_parameter_is_wrong() {
        let wrong = wrong_parameter::<StreamQuery>;
        assert_eq!(wrong("after=1&limit=many"), "limit cannot be \"many\"");
        assert_eq!(wrong("limit=-1"), "limit cannot be \"-1\"");
        assert_eq!(
            wrong("wait_ms=99999999999999999999"),
            "wait_ms cannot be \"99999999999999999999\""
        );
        assert_eq!(wrong("x=1&limit=2"), "there is no parameter \"x\" here");
        assert_eq!(wrong("limit=1&limit=2"), "a parameter is given more than once");
        assert_eq!(wrong("limit="), "limit cannot be \"\"");
    }

    #[test]
    fn a_page_has_a_limit() {
        assert_eq!(rows(None), Ok(LIMIT_DEFAULT));
        assert_eq!(rows(Some(LIMIT_MAX)), Ok(LIMIT_MAX));
        assert!(rows(Some(0)).is_err() && rows(Some(LIMIT_MAX + 1)).is_err());
    }
}
