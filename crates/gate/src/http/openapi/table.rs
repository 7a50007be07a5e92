//! The routes that the gate answers itself, as the OpenAPI document lists them.

use super::JSON;
use crate::exposition;
use crate::principals::Role;

/// A route beside the doors.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) method: &'static str,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// Names of [`super::schemas::parameters`].
    pub(super) parameters: &'static [&'static str],
    /// A name of [`super::schemas::schemas`]; empty where nothing is sent.
    pub(super) body: &'static str,
    /// The media types of the answer, the usual one first.
    pub(super) content_types: &'static [&'static str],
    /// A name of [`super::schemas::schemas`]; empty where the answer is text.
    pub(super) answer: &'static str,
    pub(super) access: Access,
}

/// Who may ask at a route, and so what it can answer.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    /// Whoever asks.
    Everybody,
    /// Readiness: whoever asks, and "not ready" is an answer of its own.
    Ready,
    /// Role `read`.
    Readers,
    /// Role `read`, and what is asked for may not be there.
    ReadersOfOne,
    /// Role `read` or `consume`, and what is asked for may not be there.
    EntryReaders,
    /// Role `read` or `metrics`.
    Scrapers,
    /// Role `consume`, in the body of a request.
    Consumers,
    /// Role `operate`, and what is asked for may fail elsewhere.
    Operators,
    /// Role `operate`, on what is kept.
    Menders,
    /// Role `operate`, and what is asked for may not be so.
    Judges,
    /// Role `produce`, `forward`, `read` or `operate` at the ingestion gate, which answers in its own words.
    Ingestion,
    /// Role `operate`, and a run that may not be closed.
    Closers,
    /// Whoever may ask for runs; the runner answers in the same words.
    Runner,
}

impl Access {
    /// The roles any one of which is enough; none where no key is needed.
    pub(super) fn roles(self, method: &str) -> &'static [Role] {
        match self {
            Self::Everybody | Self::Ready => &[],
            Self::Ingestion => &[Role::Produce, Role::Forward, Role::Read, Role::Operate],
            Self::Readers | Self::ReadersOfOne => &[Role::Read],
            Self::EntryReaders => &[Role::Read, Role::Consume],
            Self::Scrapers => &[Role::Metrics, Role::Read],
            Self::Consumers => &[Role::Consume],
            Self::Operators | Self::Menders | Self::Judges | Self::Closers => &[Role::Operate],
            Self::Runner => match method {
                "get" => &[Role::Read],
                _ => &[Role::Operate],
            },
        }
    }
}

/// A route that is read, in JSON.
pub(super) const fn json(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static str],
    answer: &'static str,
    access: Access,
) -> Route {
    let (method, body, content_types) = ("get", "", ONLY_JSON);
    Route { path, method, id, summary, parameters, body, content_types, answer, access }
}

const ONLY_JSON: &[&str] = &[JSON];

/// Where streams are read and consumers settle; `post` of an event is a door's.
const STREAM: &[&str] = &["stream", "after", "limit", "wait_ms"];

const RECEIPTS: &[&str] = &["door", "principal", "verdict", "after", "limit"];

/// Everything of `routes.rs`, in its order.
pub(super) const ROUTES: &[Route] = &[
    json("/", "doors", "The doors of this gate", &[], "Doors", Access::Everybody),
    json("/livez", "livez", "Whether the process answers", &[], "Alive", Access::Everybody),
    json("/readyz", "readyz", "Whether events can be sent", &[], "Ready", Access::Ready),
    json(
        "/healthz",
        "healthz",
        "Readiness, with what it was judged by",
        &["verbose"],
        "Health",
        Access::Ready,
    ),
    Route {
        path: "/metrics",
        method: "get",
        id: "metrics",
        summary: "What the gate counts, for Prometheus",
        parameters: &[],
        body: "",
        content_types: &[exposition::CONTENT_TYPE],
        answer: "",
        access: Access::Scrapers,
    },
    json("/openapi.json", "openapi", "This document", &[], "OpenApi", Access::Everybody),
    json(
        "/v1/receipts/{id}",
        "receipt",
        "One receipt",
        &["receipt_id", "id_door", "id_run"],
        "Receipt",
        Access::ReadersOfOne,
    ),
    json(
        "/v1/receipts/{id}/document",
        "receipt_document",
        "The document that the contract issued about one delivery",
        &["receipt_id", "id_door", "id_run"],
        "IssuedDocument",
        Access::ReadersOfOne,
    ),
    json(
        "/v1/admissions",
        "admissions",
        "What was decided, in ledger order",
        RECEIPTS,
        "Admissions",
        Access::Readers,
    ),
    json(
        "/v1/quarantine",
        "quarantine",
        "What was kept but not applied, in ledger order",
        &["door", "principal", "quarantine_verdict", "after", "limit"],
        "Quarantine",
        Access::Readers,
    ),
    json(
        "/v1/intents/{receipt_id}",
        "intent",
        "One intent, with its history",
        &["intent_receipt_id"],
        "Intent",
        Access::ReadersOfOne,
    ),
    Route {
        method: "post",
        body: "Replay",
        ..json(
            "/v1/intents/{receipt_id}/replay",
            "replay",
            "Make one more attempt at what an intent causes",
            &["intent_receipt_id"],
            "IntentEnvelope",
            Access::Operators,
        )
    },
    json(
        "/v1/ops/lookup",
        "lookup",
        "One receipt of the ingestion gate, by the first of these that is given",
        &["event_id", "ig_receipt_id", "dedupe_key"],
        "Lookup",
        Access::Ingestion,
    ),
    json(
        "/v1/ops/health",
        "ingestion_health",
        "GREEN, AMBER or RED, with reasons",
        &[],
        "IngestionHealth",
        Access::Ingestion,
    ),
    Route {
        method: "post",
        body: "ConfirmTime",
        ..json(
            "/v1/ops/confirm-time",
            "confirm_time",
            "Confirm that the clock is right after a jump, so that retention goes on",
            &[],
            "ConfirmedTime",
            Access::Menders,
        )
    },
    json(
        "/v1/reconcile",
        "ambiguous",
        "Ambiguous publishes, with what the bus says of each",
        &["run", "after", "limit"],
        "Ambiguous",
        Access::ReadersOfOne,
    ),
    Route {
        method: "post",
        body: "Reconcile",
        ..json(
            "/v1/reconcile/{key}",
            "reconcile",
            "Say what became of an ambiguous publish",
            &["key"],
            "Reconciled",
            Access::Judges,
        )
    },
    Route {
        method: "post",
        body: "Release",
        ..json(
            "/v1/quarantine/{id}/release",
            "release",
            "Let a quarantine go, dismissed or resubmitted",
            &["quarantine_id"],
            "Released",
            Access::Judges,
        )
    },
    json(
        "/v1/pixel/servers",
        "pixel_servers",
        "Game servers, as their events tell of them",
        &["after_entity", "limit"],
        "PixelServers",
        Access::Readers,
    ),
    json(
        "/v1/pixel/servers/{scope}",
        "pixel_servers_of",
        "The game servers of one principal",
        &["scope", "after_entity", "limit"],
        "PixelServers",
        Access::Readers,
    ),
    json(
        "/v1/pixel/servers/{scope}/",
        "pixel_server_without_login",
        "What was said by servers that did not name themselves",
        &["scope"],
        "PixelServer",
        Access::ReadersOfOne,
    ),
    json(
        "/v1/pixel/servers/{scope}/{login}",
        "pixel_server",
        "One game server",
        &["scope", "login"],
        "PixelServer",
        Access::ReadersOfOne,
    ),
    json(
        "/v1/rounds",
        "rounds",
        "Rounds, the newest first",
        &["map_name", "date", "round_state", "after_round", "limit"],
        "Rounds",
        Access::ReadersOfOne,
    ),
    json(
        "/v1/rounds/diagnostics",
        "rounds_diagnostics",
        "How it goes with rounds: counts, what is not linked, each source, the last days",
        &[],
        "RoundsDiagnostics",
        Access::ReadersOfOne,
    ),
    Route {
        method: "post",
        ..json(
            "/v1/rounds/relink",
            "rounds_relink",
            "Link again what is not linked",
            &["dry_run"],
            "Relinked",
            Access::Menders,
        )
    },
    Route {
        method: "post",
        body: "Accept",
        ..json(
            "/v1/rounds/accept/{receipt_id}",
            "rounds_accept",
            "Have a later stats file of a round count, totals too",
            &["round_receipt_id"],
            "AcceptedRound",
            Access::Judges,
        )
    },
    json(
        "/v1/rounds/reconcile",
        "ambiguous_rounds",
        "Ambiguous publications of rounds, with what the bus says of each",
        &["after_publication", "limit"],
        "AmbiguousRounds",
        Access::ReadersOfOne,
    ),
    Route {
        method: "post",
        body: "Reconcile",
        ..json(
            "/v1/rounds/reconcile/{key}",
            "reconcile_round",
            "Say what became of an ambiguous publication of a round",
            &["key"],
            "ReconciledRound",
            Access::Judges,
        )
    },
    json(
        "/v1/rounds/{round_id}",
        "round",
        "One round: every field with who told it, its sources, publications and history",
        &["round_id"],
        "Round",
        Access::ReadersOfOne,
    ),
    Route {
        content_types: &[JSON, "text/event-stream"],
        ..json(
            "/v1/events",
            "read_default_stream",
            "The default stream, in ledger order; or every event as it comes",
            &["after", "limit", "wait_ms"],
            "StreamPage",
            Access::EntryReaders,
        )
    },
    Route {
        content_types: &[JSON, "text/event-stream"],
        ..json(
            "/v1/events/{stream}",
            "read_stream",
            "A stream, in ledger order; or every event as it comes",
            STREAM,
            "StreamPage",
            Access::EntryReaders,
        )
    },
    Route {
        method: "post",
        body: "Claim",
        ..json(
            "/v1/events/{stream}/claim",
            "claim",
            "Claim events of a stream under a lease",
            &["stream"],
            "Claimed",
            Access::Consumers,
        )
    },
    Route {
        method: "post",
        body: "Change",
        ..json(
            "/v1/events/{stream}/{receipt_id}",
            "settle",
            "Say what became of a claimed event",
            &["stream", "claimed_id"],
            "Changed",
            Access::Consumers,
        )
    },
    json(
        "/v1/inbox",
        "inbox",
        "What came into the inbox, in order of arrival",
        &["inbox_status", "after_row", "limit"],
        "InboxPage",
        Access::EntryReaders,
    ),
    Route {
        method: "post",
        body: "Claim",
        ..json(
            "/v1/inbox/claim",
            "inbox_claim",
            "Claim events of the inbox under a lease",
            &[],
            "InboxClaimed",
            Access::Consumers,
        )
    },
    json(
        "/v1/inbox/{event_id}",
        "inbox_event",
        "One event of the inbox",
        &["inbox_event_id"],
        "InboxEvent",
        Access::EntryReaders,
    ),
    Route {
        method: "post",
        body: "Change",
        ..json(
            "/v1/inbox/{event_id}",
            "inbox_settle",
            "Say what became of a claimed event of the inbox",
            &["inbox_event_id"],
            "InboxChanged",
            Access::Consumers,
        )
    },
];
