//! Table of the gate's own routes for the OpenAPI document.

use super::JSON;
use crate::exposition;
use crate::principals::Role;

/// A route other than a door.
pub(super) struct Route {
    pub(super) path: &'static str,
    pub(super) method: &'static str,
    pub(super) id: &'static str,
    pub(super) summary: &'static str,
    /// Names of [`super::schemas::parameters`].
    pub(super) parameters: &'static [&'static str],
    /// Schema of the request body, a name of [`super::schemas::schemas`]; empty without a body.
    pub(super) body: &'static str,
    /// Media types of the response, the default first.
    pub(super) content_types: &'static [&'static str],
    /// Schema of the response, a name of [`super::schemas::schemas`]; empty for text.
    pub(super) schema: &'static str,
    pub(super) access: AccessClass,
}

/// Access class of a route: the required role and the possible errors.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum AccessClass {
    /// No key.
    Public,
    /// No key; 503 has the schema of the route too.
    Readiness,
    /// Role `read`.
    Read,
    /// Role `read`, with `not_found`.
    ReadItem,
    /// Role `read` or `consume`, with `not_found`.
    ReadEntries,
    /// Role `read` or `metrics`.
    Metrics,
    /// Role `consume`: claim and settle.
    Consume,
    /// Role `operate`: intent replay, which may fail at the gateway.
    Replay,
    /// Role `operate`: maintenance of stored data.
    Maintain,
    /// Role `operate`, with `not_reconcilable`.
    Reconcile,
    /// Role `produce`, `forward`, `read` or `operate` at the ingestion gate, with errors in its own format.
    Ingestion,
    /// Role `operate`, with `closure_refused`.
    Close,
    /// Role `read` for the status, `operate` otherwise, with errors in the ingestion gate's format.
    Runner,
}

impl AccessClass {
    /// Roles, of which one is sufficient; empty if no key is needed.
    pub(super) fn roles(self, method: &str) -> &'static [Role] {
        match self {
            Self::Public | Self::Readiness => &[],
            Self::Ingestion => &[Role::Produce, Role::Forward, Role::Read, Role::Operate],
            Self::Read | Self::ReadItem => &[Role::Read],
            Self::ReadEntries => &[Role::Read, Role::Consume],
            Self::Metrics => &[Role::Metrics, Role::Read],
            Self::Consume => &[Role::Consume],
            Self::Replay | Self::Maintain | Self::Reconcile | Self::Close => &[Role::Operate],
            Self::Runner => match method {
                "get" => &[Role::Read],
                _ => &[Role::Operate],
            },
        }
    }
}

/// A `get` route with a JSON response.
pub(super) const fn json(
    path: &'static str,
    id: &'static str,
    summary: &'static str,
    parameters: &'static [&'static str],
    schema: &'static str,
    access: AccessClass,
) -> Route {
    let (method, body, content_types) = ("get", "", ONLY_JSON);
    Route { path, method, id, summary, parameters, body, content_types, schema, access }
}

const ONLY_JSON: &[&str] = &[JSON];

/// Parameters of reading a stream.
const STREAM: &[&str] = &["stream", "after", "limit", "wait_ms"];

/// Parameters of lists of receipts.
const RECEIPTS: &[&str] = &["door", "principal", "verdict", "after", "limit"];

/// The routes of `routes.rs`, in the same order.
pub(super) const ROUTES: &[Route] = &[
    json("/", "doors", "The doors of this gate", &[], "Doors", AccessClass::Public),
    json("/livez", "livez", "Liveness", &[], "Alive", AccessClass::Public),
    json("/readyz", "readyz", "Readiness", &[], "Ready", AccessClass::Readiness),
    json(
        "/healthz",
        "healthz",
        "Readiness with its checks",
        &["verbose"],
        "Health",
        AccessClass::Readiness,
    ),
    Route {
        path: "/metrics",
        method: "get",
        id: "metrics",
        summary: "Metrics in the Prometheus text format",
        parameters: &[],
        body: "",
        content_types: &[exposition::CONTENT_TYPE],
        schema: "",
        access: AccessClass::Metrics,
    },
    json("/openapi.json", "openapi", "This document", &[], "OpenApi", AccessClass::Public),
    json(
        "/v1/receipts/{id}",
        "receipt",
        "One receipt",
        &["receipt_id", "id_door", "id_run"],
        "Receipt",
        AccessClass::ReadItem,
    ),
    json(
        "/v1/receipts/{id}/document",
        "receipt_document",
        "Document that the contract issued for one delivery",
        &["receipt_id", "id_door", "id_run"],
        "IssuedDocument",
        AccessClass::ReadItem,
    ),
    json(
        "/v1/admissions",
        "admissions",
        "List admissions in ledger order",
        RECEIPTS,
        "Admissions",
        AccessClass::Read,
    ),
    json(
        "/v1/quarantine",
        "quarantine",
        "List quarantined events in ledger order",
        &["door", "principal", "quarantine_verdict", "after", "limit"],
        "Quarantine",
        AccessClass::Read,
    ),
    json(
        "/v1/intents/{receipt_id}",
        "intent",
        "One intent, with its history",
        &["intent_receipt_id"],
        "Intent",
        AccessClass::ReadItem,
    ),
    Route {
        method: "post",
        body: "Replay",
        ..json(
            "/v1/intents/{receipt_id}/replay",
            "replay",
            "Repeat the effect of an intent",
            &["intent_receipt_id"],
            "IntentEnvelope",
            AccessClass::Replay,
        )
    },
    json(
        "/v1/ops/lookup",
        "lookup",
        "One receipt of the ingestion gate, by the first given parameter",
        &["event_id", "ig_receipt_id", "dedupe_key"],
        "Lookup",
        AccessClass::Ingestion,
    ),
    json(
        "/v1/ops/health",
        "ingestion_health",
        "Health of the ingestion gate: GREEN, AMBER or RED, with reasons",
        &[],
        "IngestionHealth",
        AccessClass::Ingestion,
    ),
    Route {
        method: "post",
        body: "ConfirmTime",
        ..json(
            "/v1/ops/confirm-time",
            "confirm_time",
            "Confirm the clock after a jump, so that retention resumes",
            &[],
            "ConfirmedTime",
            AccessClass::Maintain,
        )
    },
    json(
        "/v1/reconcile",
        "ambiguous",
        "List ambiguous publishes, each with its search result on the bus",
        &["run", "after", "limit"],
        "Ambiguous",
        AccessClass::ReadItem,
    ),
    Route {
        method: "post",
        body: "Reconcile",
        ..json(
            "/v1/reconcile/{key}",
            "reconcile",
            "Resolve an ambiguous publish",
            &["key"],
            "Reconciled",
            AccessClass::Reconcile,
        )
    },
    Route {
        method: "post",
        body: "Release",
        ..json(
            "/v1/quarantine/{id}/release",
            "release",
            "Release a quarantined event, as dismissed or resubmitted",
            &["quarantine_id"],
            "Released",
            AccessClass::Reconcile,
        )
    },
    json(
        "/v1/pixel/servers",
        "pixel_servers",
        "List game servers",
        &["after_entity", "limit"],
        "PixelServers",
        AccessClass::Read,
    ),
    json(
        "/v1/pixel/servers/{scope}",
        "pixel_servers_of",
        "List game servers of one principal",
        &["scope", "after_entity", "limit"],
        "PixelServers",
        AccessClass::Read,
    ),
    json(
        "/v1/pixel/servers/{scope}/",
        "pixel_server_without_login",
        "Events without a server login",
        &["scope"],
        "PixelServer",
        AccessClass::ReadItem,
    ),
    json(
        "/v1/pixel/servers/{scope}/{login}",
        "pixel_server",
        "One game server",
        &["scope", "login"],
        "PixelServer",
        AccessClass::ReadItem,
    ),
    json(
        "/v1/rounds",
        "rounds",
        "List rounds, newest first",
        &["map_name", "date", "round_state", "after_round", "limit"],
        "Rounds",
        AccessClass::ReadItem,
    ),
    json(
        "/v1/rounds/diagnostics",
        "rounds_diagnostics",
        "Diagnostics of rounds: counts, unlinked events, sources, last days",
        &[],
        "RoundsDiagnostics",
        AccessClass::ReadItem,
    ),
    Route {
        method: "post",
        ..json(
            "/v1/rounds/relink",
            "rounds_relink",
            "Relink unlinked events",
            &["dry_run"],
            "Relinked",
            AccessClass::Maintain,
        )
    },
    Route {
        method: "post",
        body: "Accept",
        ..json(
            "/v1/rounds/accept/{receipt_id}",
            "rounds_accept",
            "Accept a later stats file of a round, including its totals",
            &["round_receipt_id"],
            "AcceptedRound",
            AccessClass::Reconcile,
        )
    },
    json(
        "/v1/rounds/reconcile",
        "ambiguous_rounds",
        "List ambiguous publications of rounds, each with its search result on the bus",
        &["after_publication", "limit"],
        "AmbiguousRounds",
        AccessClass::ReadItem,
    ),
    Route {
        method: "post",
        body: "Reconcile",
        ..json(
            "/v1/rounds/reconcile/{key}",
            "reconcile_round",
            "Resolve an ambiguous publication of a round",
            &["key"],
            "ReconciledRound",
            AccessClass::Reconcile,
        )
    },
    json(
        "/v1/rounds/{round_id}",
        "round",
        "One round: fields with their sources, publications and history",
        &["round_id"],
        "Round",
        AccessClass::ReadItem,
    ),
    Route {
        content_types: &[JSON, "text/event-stream"],
        ..json(
            "/v1/events",
            "read_default_stream",
            "Read the default stream in ledger order, by page or as server-sent events",
            &["after", "limit", "wait_ms"],
            "StreamPage",
            AccessClass::ReadEntries,
        )
    },
    Route {
        content_types: &[JSON, "text/event-stream"],
        ..json(
            "/v1/events/{stream}",
            "read_stream",
            "Read a stream in ledger order, by page or as server-sent events",
            STREAM,
            "StreamPage",
            AccessClass::ReadEntries,
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
            AccessClass::Consume,
        )
    },
    Route {
        method: "post",
        body: "Change",
        ..json(
            "/v1/events/{stream}/{receipt_id}",
            "settle",
            "Settle a claimed event",
            &["stream", "claimed_id"],
            "Changed",
            AccessClass::Consume,
        )
    },
    json(
        "/v1/inbox",
        "inbox",
        "List inbox events in order of arrival",
        &["inbox_status", "after_row", "limit"],
        "InboxPage",
        AccessClass::ReadEntries,
    ),
    Route {
        method: "post",
        body: "Claim",
        ..json(
            "/v1/inbox/claim",
            "inbox_claim",
            "Claim inbox events under a lease",
            &[],
            "InboxClaimed",
            AccessClass::Consume,
        )
    },
    json(
        "/v1/inbox/{event_id}",
        "inbox_event",
        "One inbox event",
        &["inbox_event_id"],
        "InboxEvent",
        AccessClass::ReadEntries,
    ),
    Route {
        method: "post",
        body: "Change",
        ..json(
            "/v1/inbox/{event_id}",
            "inbox_settle",
            "Settle a claimed inbox event",
            &["inbox_event_id"],
            "InboxChanged",
            AccessClass::Consume,
        )
    },
];
