//! Extractors for query parameters, path parameters and bodies, each with a typed refusal.

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

use super::{Requester, RouteReply};
use crate::admission_limiter::AdmissionPermit;
use crate::gate::Gate;
use crate::http::response;
use crate::request_permit::OVERLOADED;

const LIMIT_DEFAULT: usize = 100;
const LIMIT_MAX: usize = 1_000;

/// Returns the page size for the `limit` parameter.
pub(in crate::http) fn rows(limit: Option<usize>) -> Result<usize, String> {
    match limit.unwrap_or(LIMIT_DEFAULT) {
        limit @ 1..=LIMIT_MAX => Ok(limit),
        _ => Err(format!("limit must be 1 to {LIMIT_MAX}")),
    }
}

/// Query of one receipt.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct ReceiptQuery {
    /// The door whose contract issued the id.
    pub(super) door: Option<String>,
    /// The run that the id belongs to.
    pub(super) run: Option<String>,
}

/// Query of a list of receipts.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct ReceiptsQuery {
    pub(super) door: Option<String>,
    pub(super) principal: Option<String>,
    /// Verdicts, separated by commas.
    pub(super) verdict: Option<String>,
    /// Cursor: a receipt id or a seq.
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
}

/// Query of a list of read models.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct DocumentsQuery {
    /// The `next` value of the previous page.
    pub(in crate::http) after: Option<String>,
    pub(in crate::http) limit: Option<usize>,
}

/// Query of a list of ambiguous publishes.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct AmbiguousQuery {
    /// Only publishes of this run.
    pub(in crate::http) run: Option<String>,
    /// Cursor: a receipt id or a seq.
    pub(in crate::http) after: Option<String>,
    pub(in crate::http) limit: Option<usize>,
}

/// Query of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct StreamQuery {
    /// Cursor: a receipt id or a seq. Without it, reading starts at the first event.
    pub(super) after: Option<String>,
    pub(super) limit: Option<usize>,
    /// Timeout of a long poll at the end of the stream, in milliseconds.
    pub(super) wait_ms: Option<u64>,
}

/// Query of the inbox.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(in crate::http) struct InboxQuery {
    pub(super) status: Option<String>,
    /// The `next_after` value of the previous page.
    pub(super) after: Option<i64>,
    pub(super) limit: Option<usize>,
}

/// Parses the `after` cursor.
pub(in crate::http) fn after(text: Option<&str>, ledger: u32) -> Result<Seq, String> {
    let Some(text) = text else { return Ok(Seq::default()) };
    if let Ok(seq) = text.parse() {
        return Ok(seq);
    }
    match text.parse::<ReceiptId>() {
        Ok(id) if id.ledger == ledger => Ok(id.seq),
        Ok(_) => Err("after is a receipt of another ledger".to_owned()),
        Err(error) => Err(format!("invalid after: {error}, or a seq like 42")),
    }
}

/// Parses the `verdict` parameter; without it, all `allowed` verdicts.
pub(super) fn verdicts(text: Option<&str>, allowed: &[&str]) -> Result<Vec<String>, String> {
    let requested = match text {
        None => allowed.to_vec(),
        Some(text) => text.split(',').map(str::trim).collect(),
    };
    match requested.iter().find(|word| !allowed.contains(word)) {
        None => Ok(requested.into_iter().map(str::to_owned).collect()),
        Some(_) => Err(format!("verdict must be one of {}", allowed.join(", "))),
    }
}

/// Query parameters; a refusal names the invalid one.
pub(in crate::http) struct QueryParams<Q>(pub(in crate::http) Q);

impl<Q: DeserializeOwned> FromRequestParts<Arc<Gate>> for QueryParams<Q> {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        match Query::<Q>::try_from_uri(&head.uri) {
            Ok(Query(query)) => Ok(Self(query)),
            Err(_) => {
                let problem = describe_invalid_parameter::<Q>(head.uri.query().unwrap_or_default());
                Err(invalid(gate, &format!("the query cannot be read: {problem}")))
            }
        }
    }
}

/// Longest part of a parameter that an error message repeats, in characters.
const SHOWN_CHARS_MAX: usize = 64;

/// Describes the error in an invalid query. All parameters of all routes are optional, so each is parsed
/// alone to find the invalid one.
fn describe_invalid_parameter<Q: DeserializeOwned>(query: &str) -> String {
    let fits = |pair: &str| {
        let uri = format!("/?{pair}").parse();
        uri.is_ok_and(|uri| Query::<Q>::try_from_uri(&uri).is_ok())
    };
    let shown = |text: &str| text.chars().take(SHOWN_CHARS_MAX).collect::<String>();
    let Some(pair) = query.split('&').find(|pair| !pair.is_empty() && !fits(pair)) else {
        return "a parameter is given more than once".to_owned();
    };
    let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
    // Every parameter type accepts one of these values, so the name exists if one fits.
    match ["1", "true"].iter().any(|value| fits(&format!("{name}={value}"))) {
        true => format!("{} cannot be {:?}", shown(name), shown(value)),
        false => format!("there is no parameter {:?} here", shown(name)),
    }
}

/// Path parameters; a refusal if they are not UTF-8.
pub(in crate::http) struct PathParams<T>(pub(in crate::http) T);

impl<T: DeserializeOwned + Send> FromRequestParts<Arc<Gate>> for PathParams<T> {
    type Rejection = RouteReply;

    async fn from_request_parts(head: &mut Parts, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        match Path::<T>::from_request_parts(head, gate).await {
            Ok(Path(params)) => Ok(Self(params)),
            Err(_) => {
                let message = "the path cannot be read: it is not UTF-8";
                let (path, code) = (head.uri.path(), Code::InvalidRequest);
                Err(RouteReply(response::refuse_at(gate, path, code, message)))
            }
        }
    }
}

/// Whole body of a request, within the limits.
pub(in crate::http) struct BodyBytes(pub(in crate::http) Bytes);

impl FromRequest<Arc<Gate>> for BodyBytes {
    type Rejection = RouteReply;

    async fn from_request(request: Request, gate: &Arc<Gate>) -> Result<Self, RouteReply> {
        let index = request.extensions().get::<Arc<Requester>>().and_then(|known| known.index());
        let uri = request.uri().clone();
        let refuse =
            |code, message| Err(RouteReply(response::refuse_at(gate, uri.path(), code, message)));
        // Routes with a body have authenticated the request before.
        let permit = index.and_then(|index| gate.admission_limiter.try_acquire(index, 0));
        let Some(mut permit) = permit else {
            return refuse(OVERLOADED.code, OVERLOADED.message);
        };
        let reading = read(request.into_body(), gate.limits.body_bytes_max, &mut permit);
        let refused = match timeout(gate.limits.body_read_max(), reading).await {
            Ok(Ok(body)) => return Ok(Self(body)),
            Ok(Err(refused)) => refused,
            Err(_) => {
                (Code::RequestTimeout, "timeout while reading the body (limits.body_read_ms_max)")
            }
        };
        let (code, message) = refused;
        refuse(code, message)
    }
}

/// Reads a whole body of at most `bytes_max`, reserving memory as it arrives.
async fn read(
    mut body: Body,
    bytes_max: usize,
    permit: &mut AdmissionPermit,
) -> Result<Bytes, (Code, &'static str)> {
    const UNUSABLE: (Code, &str) = (
        Code::BodyTooLarge,
        "the body exceeds limits.body_bytes_max, or the connection closed before its end",
    );
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame.map_err(|_| UNUSABLE)?.into_data() else { continue };
        let length = whole.len() + data.len();
        if length > bytes_max {
            return Err(UNUSABLE);
        }
        if !permit.grow_to(length) {
            return Err((OVERLOADED.code, OVERLOADED.message));
        }
        whole.extend_from_slice(&data);
    }
    Ok(whole.freeze())
}

pub(in crate::http) fn invalid(gate: &Gate, message: &str) -> RouteReply {
    RouteReply(response::refuse(gate, Code::InvalidRequest, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_is_a_seq_or_a_receipt_of_this_ledger() {
        assert_eq!(after(None, 7), Ok(Seq(0)));
        assert_eq!(after(Some("42"), 7), Ok(Seq(42)));
        assert_eq!(after(Some("rcp-00000007-42"), 7), Ok(Seq(42)));
        assert!(after(Some("rcp-00000008-42"), 7).is_err());
        for wrong in ["yesterday", "18446744073709551615", "rcp-00000007-9223372036854775808"] {
            assert!(after(Some(wrong), 7).is_err(), "{wrong}");
        }
    }

    #[test]
    fn only_verdicts_of_the_list_are_accepted() {
        let allowed = ["conflict", "refused"];
        assert_eq!(verdicts(None, &allowed).unwrap(), allowed);
        assert_eq!(verdicts(Some("refused, conflict"), &allowed).unwrap(), ["refused", "conflict"]);
        assert!(verdicts(Some("fresh"), &allowed).is_err());
        assert!(verdicts(Some(""), &allowed).is_err());
    }

    #[test]
    fn the_error_names_the_invalid_parameter() {
        let describe = describe_invalid_parameter::<StreamQuery>;
        assert_eq!(describe("after=1&limit=many"), "limit cannot be \"many\"");
        assert_eq!(describe("limit=-1"), "limit cannot be \"-1\"");
        assert_eq!(
            describe("wait_ms=99999999999999999999"),
            "wait_ms cannot be \"99999999999999999999\""
        );
        assert_eq!(describe("x=1&limit=2"), "there is no parameter \"x\" here");
        assert_eq!(describe("limit=1&limit=2"), "a parameter is given more than once");
        assert_eq!(describe("limit="), "limit cannot be \"\"");
    }

    #[test]
    fn the_page_size_is_limited() {
        assert_eq!(rows(None), Ok(LIMIT_DEFAULT));
        assert_eq!(rows(Some(LIMIT_MAX)), Ok(LIMIT_MAX));
        assert!(rows(Some(0)).is_err() && rows(Some(LIMIT_MAX + 1)).is_err());
    }
}
