//! JSON of rounds, for the HTTP routes and the command line.

use std::collections::BTreeMap;

use admit_core::json::{self, Limits, Object, Value};
use admit_core::{Millis, ReceiptId, Seq};
use admit_ledger::port::{
    CountsFilter, EventLine, FieldLine, RecordCounts, RecordDetail, RecordLine, SourceCounts,
    StepLine,
};
use admit_ledger::publications::{Publication, PublicationCounts};

/// Period of "recent" events, and number of days listed individually.
const RECENT_MS: i64 = 24 * 3600 * 1000;
const DAYS: i64 = 14;

/// Number of newest events in the diagnostics.
const NEWEST_MAX: usize = 5;

/// Share of unlinked recent events, in percent, above which the status is `warning`.
const UNLINKED_PERCENT_MAX: u64 = 20;

/// Sources of the server script; a round without any of them lacks its timing.
const LUA_SOURCES: [&str; 2] = ["stats_ready", "gametime_fallback"];

/// Ledger filter of the diagnostics.
pub fn diagnostics_filter(now: Millis) -> CountsFilter {
    CountsFilter {
        recent_since: Millis(now.0 - RECENT_MS),
        days_since: Millis(now.0 - DAYS * RECENT_MS),
        without: LUA_SOURCES.map(str::to_owned).to_vec(),
        newest: NEWEST_MAX,
    }
}

/// Pagination cursor after `line`, for [`parse_cursor`].
pub fn page_cursor(line: &RecordLine) -> String {
    format!("{}:{}", line.event_time.unwrap_or(0), line.record_id)
}

/// Parses a pagination cursor.
pub fn parse_cursor(text: &str) -> Option<(i64, String)> {
    let (time, id) = text.split_once(':')?;
    Some((time.parse().ok()?, id.to_owned()))
}

/// JSON of a round in a list: its identity, followed by its fields.
pub fn line(line: &RecordLine) -> Object<'static> {
    let mut object = identity(line);
    for field in &line.fields {
        if !object.contains_key(&field.name) {
            object.push(field.name.clone(), read(&field.value));
        }
    }
    object
}

fn identity(line: &RecordLine) -> Object<'static> {
    Object::from_iter([
        ("round_id", Value::from(line.record_id.clone())),
        ("map_name", line.group.clone().into()),
        ("round_number", line.number.into()),
        ("round_date", line.date.clone().into()),
        ("round_time", line.time.clone().into()),
        ("state", line.state.clone().into()),
        ("revision", line.revision.into()),
        ("opened_at", line.opened_at.to_rfc3339_millis().into()),
        ("changed_at", line.changed_at.to_rfc3339_millis().into()),
    ])
}

/// JSON of a round as it is published: its identity, and every field with its source.
pub fn message(detail: &RecordDetail, ledger: u32) -> Object<'static> {
    let mut object = identity(&detail.line);
    object.remove("state");
    object.push("fingerprints", read(&detail.fingerprints));
    object.push("fields", fields(&detail.line.fields, ledger));
    object
}

fn fields(lines: &[FieldLine], ledger: u32) -> Object<'static> {
    lines.iter().map(|line| (line.name.clone(), Value::from(field(line, ledger)))).collect()
}

/// JSON of the publication of a round's revision.
pub fn publication(publication: &Publication) -> Object<'static> {
    let evidence = publication.state.evidence();
    let evidence = evidence.map(|evidence| String::from_utf8_lossy(evidence.as_bytes()));
    Object::from_iter([
        ("revision", Value::from(publication.revision)),
        ("state", publication.state.word().into()),
        ("reason_code", publication.reason.clone().into()),
        ("attempt", publication.state.attempt().into()),
        ("topic", publication.topic.clone().into()),
        ("dedupe_key", publication.dedupe_key.clone().into()),
        ("begun_at", publication.begun_at.to_rfc3339_millis().into()),
        ("changed_at", publication.changed_at.to_rfc3339_millis().into()),
        ("evidence", evidence.map(|text| read(&text)).into()),
    ])
}

/// JSON of a round with its fields, sources, publications and history.
pub fn detail(detail: &RecordDetail, published: &[Publication], ledger: u32) -> Object<'static> {
    let mut object = identity(&detail.line);
    object.push("fingerprints", read(&detail.fingerprints));
    object.push("fields", fields(&detail.line.fields, ledger));
    let sources: Value<'static> = detail.events.iter().map(|event| source(event, ledger)).collect();
    object.push("sources", sources);
    let history: Value<'static> = detail.steps.iter().map(|line| step(line, ledger)).collect();
    let published: Value<'static> = published.iter().map(publication).collect();
    object.push("publications", published);
    object.push("history", history);
    object
}

fn field(line: &FieldLine, ledger: u32) -> Object<'static> {
    Object::from_iter([
        ("value", read(&line.value)),
        ("source", line.source.clone().into()),
        ("event", receipt(ledger, line.event)),
    ])
}

/// JSON of an event of a source, with its link state.
pub fn source(event: &EventLine, ledger: u32) -> Object<'static> {
    let (head, link) = (read(&event.head), read(&event.link));
    let member = |value: &Value<'static>, name: &str| value.get(name).cloned().unwrap_or_default();
    let fingerprints = member(&link, "fingerprints");
    let first = head.get("revision_of").and_then(Value::as_u64);
    let revision_of = first.map_or(Value::Null, |first| receipt(ledger, Seq(first)));
    let used = fingerprints.as_array().and_then(<[_]>::first).cloned().unwrap_or_default();
    Object::from_iter([
        ("event", receipt(ledger, event.seq)),
        ("source", event.source.clone().into()),
        ("received_at", event.received_at.to_rfc3339_millis().into()),
        ("last_seen_at", event.seen_at.to_rfc3339_millis().into()),
        ("map_name", member(&head, "group")),
        ("round_number", member(&link, "number")),
        ("round_num_source", member(&link, "number_from")),
        ("round_start_unix", member(&head, "start")),
        ("round_end_unix", member(&head, "end")),
        ("round_date", member(&head, "date")),
        ("round_time", member(&head, "time")),
        ("hard_key", member(&head, "hard_key")),
        ("revision_of", revision_of),
        ("accepted", accepted(&head)),
        ("parse_status", member(&head, "parse_status")),
        ("notes", member(&head, "parse_notes")),
        ("state", event.state.clone().into()),
        ("link_status", event.link_status.clone().into()),
        ("reason_code", event.reason_code.clone().into()),
        ("confidence", event.confidence.clone().into()),
        ("matched", member(&link, "matched")),
        ("applied", member(&link, "is_applied")),
        ("fingerprint", used),
        ("fingerprints", fingerprints),
        ("round_id", event.record_id.clone().into()),
        ("drift", event.drift.clone().into()),
        ("diagnostics", member(&link, "diagnostics")),
    ])
}

/// JSON of an operator's acceptance of the event: by, reason and time.
fn accepted(head: &Value<'_>) -> Value<'static> {
    let Some(word) = head.get("accepted").filter(|word| !word.is_null()) else {
        return Value::Null;
    };
    let member = |name: &str| word.get(name).cloned().unwrap_or_default().into_owned();
    let at = word.get("at").and_then(Value::as_i64).map(|at| Millis(at).to_rfc3339_millis());
    let accepted = [("by", member("by")), ("reason", member("reason")), ("at", at.into())];
    Value::from(Object::from_iter(accepted))
}

fn step(line: &StepLine, ledger: u32) -> Object<'static> {
    let fingerprint = line.fingerprint.as_ref().map(|(kind, value)| {
        Object::from_iter([("kind", Value::from(kind.clone())), ("value", value.clone().into())])
    });
    Object::from_iter([
        ("event", receipt(ledger, line.seq)),
        ("at", line.at.to_rfc3339_millis().into()),
        ("attempt", line.attempt.into()),
        ("from", line.from.clone().into()),
        ("to", line.to.clone().into()),
        ("source", line.source.clone().into()),
        ("round_fingerprint", fingerprint.into()),
        ("link_status", line.link_status.clone().into()),
        ("confidence", line.confidence.clone().into()),
        ("reason_code", line.reason_code.clone().into()),
        ("round_id", line.record_id.clone().into()),
    ])
}

/// JSON of the diagnostics: counts, unlinked events, sources, and the last days. `unlinked` lists the
/// first unlinked events.
pub fn diagnostics(
    counts: &RecordCounts,
    published: Option<&PublicationCounts>,
    unlinked: &[EventLine],
    ledger: u32,
) -> Object<'static> {
    let sum = |count: fn(&SourceCounts) -> u64| counts.sources.iter().map(count).sum::<u64>();
    let (recent, recent_unlinked) = (sum(|s| s.recent), sum(|s| s.recent_unlinked));
    let drifted = sum(|s| s.drifted);
    let mut errors = Vec::new();
    if drifted > 0 {
        errors.push(format!("schema drift: rows of {drifted} events are rejected by an index"));
    }
    let ambiguous = published.map_or(0, |published| published.of("ambiguous"));
    if ambiguous > 0 {
        errors
            .push(format!("{ambiguous} ambiguous publications; resolve them with admit reconcile"));
    }
    let is_unlinked = recent_unlinked * 100 > recent * UNLINKED_PERCENT_MAX;
    let status = match (errors.is_empty(), is_unlinked) {
        (false, _) => "error",
        (true, true) => "warning",
        (true, false) => "ok",
    };
    let rounds: u64 = counts.states.iter().map(|(_, count)| count).sum();
    let states: Object<'static> =
        counts.states.iter().map(|(state, count)| (state.clone(), Value::from(*count))).collect();
    let rows: Object<'static> = counts
        .rows
        .iter()
        .map(|(table, rows, unlinked)| {
            let counts = [("total", Value::from(*rows)), ("unlinked", (*unlinked).into())];
            (table.clone(), Value::from(Object::from_iter(counts)))
        })
        .collect();
    let list = |events: &[EventLine]| -> Value<'static> {
        events.iter().map(|event| source(event, ledger)).collect()
    };
    Object::from_iter([
        ("status", Value::from(status)),
        (
            "counts",
            Object::from_iter([
                ("total", Value::from(sum(|s| s.total))),
                ("unlinked_total", sum(|s| s.unlinked).into()),
                ("last_24h", recent.into()),
                ("unlinked_24h", recent_unlinked.into()),
                ("parse_failed", sum(|s| s.unread).into()),
                ("schema_drift", drifted.into()),
                ("rounds", rounds.into()),
                ("rounds_by_state", states.into()),
                ("rows", rows.into()),
            ])
            .into(),
        ),
        ("sources", counts.sources.iter().map(source_counts).collect()),
        ("latest", counts.newest.first().map(|event| source(event, ledger)).into()),
        ("recent", list(&counts.newest)),
        ("unlinked", list(unlinked)),
        ("publications", published.map(publication_counts).into()),
        ("trends", trends(counts).into()),
        ("errors", errors.into()),
    ])
}

fn publication_counts(counts: &PublicationCounts) -> Object<'static> {
    Object::from_iter([
        ("waiting", Value::from(counts.waiting)),
        ("waiting_since", counts.waiting_since.map(Millis::to_rfc3339_millis).into()),
        ("in_flight", counts.of("in_flight").into()),
        ("published", counts.of("done").into()),
        ("ambiguous", counts.of("ambiguous").into()),
        ("released", counts.of("refused").into()),
    ])
}

fn source_counts(counts: &SourceCounts) -> Object<'static> {
    Object::from_iter([
        ("source", Value::from(counts.source.clone())),
        ("total", counts.total.into()),
        ("unlinked", counts.unlinked.into()),
        ("last_24h", counts.recent.into()),
        ("unlinked_24h", counts.recent_unlinked.into()),
        ("latest", counts.latest_at.map(Millis::to_rfc3339_millis).into()),
        ("parse_failed", counts.unread.into()),
        ("schema_drift", counts.drifted.into()),
    ])
}

fn trends(counts: &RecordCounts) -> Object<'static> {
    let mut by_day: BTreeMap<&str, (u64, u64)> = BTreeMap::new();
    for (day, _, events, unlinked) in &counts.days {
        let sums = by_day.entry(day).or_default();
        sums.0 += events;
        sums.1 += unlinked;
    }
    let events: Value<'static> = by_day
        .iter()
        .map(|(day, (events, unlinked))| {
            Object::from_iter([
                ("day", Value::from((*day).to_owned())),
                ("events", (*events).into()),
                ("unlinked", (*unlinked).into()),
            ])
        })
        .collect();
    let lua: Value<'static> = counts
        .row_days
        .iter()
        .map(|(day, rows, unlinked)| {
            Object::from_iter([
                ("day", Value::from(day.clone())),
                ("lua_rows", (*rows).into()),
                ("unlinked_rows", (*unlinked).into()),
            ])
        })
        .collect();
    let rounds: Value<'static> = counts
        .record_days
        .iter()
        .map(|(day, all, without)| {
            Object::from_iter([
                ("day", Value::from(day.clone())),
                ("rounds_total", (*all).into()),
                ("rounds_without_lua", (*without).into()),
            ])
        })
        .collect();
    Object::from_iter([
        ("events_by_day", events),
        ("lua_rows_by_day", lua),
        ("rounds_without_lua_by_day", rounds),
    ])
}

fn receipt(ledger: u32, seq: Seq) -> Value<'static> {
    Value::from(ReceiptId { ledger, seq }.to_string())
}

/// Parses JSON from the ledger.
fn read(text: &str) -> Value<'static> {
    let limits = Limits { bytes_max: usize::MAX, depth_max: json::DEPTH_CEILING };
    json::parse(text.as_bytes(), &limits).map(Value::into_owned).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_continues_after_the_last_row() {
        assert_eq!(parse_cursor("1770843725:rnd-1"), Some((1_770_843_725, "rnd-1".to_owned())));
        for wrong in ["", "x:y", "5"] {
            assert_eq!(parse_cursor(wrong), None, "{wrong}");
        }
    }
}
