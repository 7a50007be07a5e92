//! Rounds as people read them: over HTTP, and by the command line beside a running gate.

use std::collections::BTreeMap;

use admit_core::json::{self, Limits, Object, Value};
use admit_core::{Millis, ReceiptId, Seq};
use admit_ledger::port::{
    CountsFilter, EventLine, FieldLine, RecordCounts, RecordDetail, RecordLine, SourceCounts,
    StepLine,
};
use admit_ledger::publications::{Publication, PublicationCounts};

/// How long an event is recent, and how many days are told one by one.
const RECENT: i64 = 24 * 3600 * 1000;
const DAYS: i64 = 14;

/// So many of the newest events are shown.
const NEWEST: usize = 5;

/// More unlinked events than this share of the recent ones are worth a look.
const UNLINKED_PERCENT_MAX: u64 = 20;

/// The sources of the script on the server; a round that none of them told of lacks its timing.
const LUA: [&str; 2] = ["stats_ready", "gametime_fallback"];

/// What the diagnostics ask of the ledger.
pub fn asked(now: Millis) -> CountsFilter {
    CountsFilter {
        recent_since: Millis(now.0 - RECENT),
        days_since: Millis(now.0 - DAYS * RECENT),
        without: LUA.map(str::to_owned).to_vec(),
        newest: NEWEST,
    }
}

/// The text of `next`, from which [`after`] reads on.
pub fn next(line: &RecordLine) -> String {
    format!("{}:{}", line.event_time.unwrap_or(0), line.record_id)
}

/// Where a page begins.
pub fn after(text: &str) -> Option<(i64, String)> {
    let (time, id) = text.split_once(':')?;
    Some((time.parse().ok()?, id.to_owned()))
}

/// A round in a list: what names it, then what is short and told of it.
pub fn line(line: &RecordLine) -> Object<'static> {
    let mut object = named(line);
    for field in &line.fields {
        if !object.contains_key(&field.name) {
            object.push(field.name.clone(), read(&field.value));
        }
    }
    object
}

fn named(line: &RecordLine) -> Object<'static> {
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

/// A round as it is published: what names it, and every field with who told it.
pub fn message(detail: &RecordDetail, ledger: u32) -> Object<'static> {
    let mut object = named(&detail.line);
    object.remove("state");
    object.push("fingerprints", read(&detail.fingerprints));
    object.push("fields", fields(&detail.line.fields, ledger));
    object
}

fn fields(told: &[FieldLine], ledger: u32) -> Object<'static> {
    told.iter().map(|told| (told.name.clone(), Value::from(field(told, ledger)))).collect()
}

/// What became of a revision of a round that was handed to the bus.
pub fn publication(told: &Publication) -> Object<'static> {
    let evidence = told.state.evidence();
    let evidence = evidence.map(|evidence| String::from_utf8_lossy(evidence.as_bytes()));
    Object::from_iter([
        ("revision", Value::from(told.revision)),
        ("state", told.state.word().into()),
        ("reason_code", told.reason.clone().into()),
        ("attempt", told.state.attempt().into()),
        ("topic", told.topic.clone().into()),
        ("dedupe_key", told.dedupe_key.clone().into()),
        ("begun_at", told.begun_at.to_rfc3339_millis().into()),
        ("changed_at", told.changed_at.to_rfc3339_millis().into()),
        ("evidence", evidence.map(|text| read(&text)).into()),
    ])
}

/// A round with every field, its sources, what was published of it, and its history.
pub fn detail(detail: &RecordDetail, published: &[Publication], ledger: u32) -> Object<'static> {
    let mut object = named(&detail.line);
    object.push("fingerprints", read(&detail.fingerprints));
    object.push("fields", fields(&detail.line.fields, ledger));
    let sources: Value<'static> = detail.events.iter().map(|event| source(event, ledger)).collect();
    object.push("sources", sources);
    let history: Value<'static> = detail.steps.iter().map(|told| step(told, ledger)).collect();
    let published: Value<'static> = published.iter().map(publication).collect();
    object.push("publications", published);
    object.push("history", history);
    object
}

fn field(told: &FieldLine, ledger: u32) -> Object<'static> {
    Object::from_iter([
        ("value", read(&told.value)),
        ("source", told.source.clone().into()),
        ("event", receipt(ledger, told.event)),
    ])
}

/// An event of a source, with where it stands.
pub fn source(event: &EventLine, ledger: u32) -> Object<'static> {
    let (head, link) = (read(&event.head), read(&event.link));
    let told = |value: &Value<'static>, name: &str| value.get(name).cloned().unwrap_or_default();
    let fingerprints = told(&link, "fingerprints");
    let first = head.get("revision_of").and_then(Value::as_u64);
    let revision_of = first.map_or(Value::Null, |first| receipt(ledger, Seq(first)));
    let used = fingerprints.as_array().and_then(<[_]>::first).cloned().unwrap_or_default();
    Object::from_iter([
        ("event", receipt(ledger, event.seq)),
        ("source", event.source.clone().into()),
        ("received_at", event.received_at.to_rfc3339_millis().into()),
        ("last_seen_at", event.seen_at.to_rfc3339_millis().into()),
        ("map_name", told(&head, "group")),
        ("round_number", told(&link, "number")),
        ("round_num_source", told(&link, "number_from")),
        ("round_start_unix", told(&head, "start")),
        ("round_end_unix", told(&head, "end")),
        ("round_date", told(&head, "date")),
        ("round_time", told(&head, "time")),
        ("hard_key", told(&head, "hard_key")),
        ("revision_of", revision_of),
        ("accepted", accepted(&head)),
        ("parse_status", told(&head, "parse_status")),
        ("notes", told(&head, "parse_notes")),
        ("state", event.state.clone().into()),
        ("link_status", event.link_status.clone().into()),
        ("reason_code", event.reason_code.clone().into()),
        ("confidence", event.confidence.clone().into()),
        ("matched", told(&link, "matched")),
        ("applied", told(&link, "is_applied")),
        ("fingerprint", used),
        ("fingerprints", fingerprints),
        ("round_id", event.record_id.clone().into()),
        ("drift", event.drift.clone().into()),
        ("diagnostics", told(&link, "diagnostics")),
    ])
}

/// Who has said that the event counts, why and when.
fn accepted(head: &Value<'_>) -> Value<'static> {
    let Some(word) = head.get("accepted").filter(|word| !word.is_null()) else {
        return Value::Null;
    };
    let said = |name: &str| word.get(name).cloned().unwrap_or_default().into_owned();
    let at = word.get("at").and_then(Value::as_i64).map(|at| Millis(at).to_rfc3339_millis());
    let accepted = [("by", said("by")), ("reason", said("reason")), ("at", at.into())];
    Value::from(Object::from_iter(accepted))
}

fn step(told: &StepLine, ledger: u32) -> Object<'static> {
    let fingerprint = told.fingerprint.as_ref().map(|(kind, value)| {
        Object::from_iter([("kind", Value::from(kind.clone())), ("value", value.clone().into())])
    });
    Object::from_iter([
        ("event", receipt(ledger, told.seq)),
        ("at", told.at.to_rfc3339_millis().into()),
        ("attempt", told.attempt.into()),
        ("from", told.from.clone().into()),
        ("to", told.to.clone().into()),
        ("source", told.source.clone().into()),
        ("round_fingerprint", fingerprint.into()),
        ("link_status", told.link_status.clone().into()),
        ("confidence", told.confidence.clone().into()),
        ("reason_code", told.reason_code.clone().into()),
        ("round_id", told.record_id.clone().into()),
    ])
}

/// How it goes: counts, what is not linked, each source, the last days. `unlinked` is the first of
/// what is not linked.
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
        errors.push(format!(
            "{drifted} events have rows that an index is in the way of: schema drift"
        ));
    }
    let ambiguous = published.map_or(0, |published| published.of("ambiguous"));
    if ambiguous > 0 {
        errors.push(format!(
            "{ambiguous} publications whose outcome nobody knows: see admit reconcile"
        ));
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

fn publication_counts(told: &PublicationCounts) -> Object<'static> {
    Object::from_iter([
        ("waiting", Value::from(told.waiting)),
        ("waiting_since", told.waiting_since.map(Millis::to_rfc3339_millis).into()),
        ("in_flight", told.of("in_flight").into()),
        ("published", told.of("done").into()),
        ("ambiguous", told.of("ambiguous").into()),
        ("released", told.of("refused").into()),
    ])
}

fn source_counts(told: &SourceCounts) -> Object<'static> {
    Object::from_iter([
        ("source", Value::from(told.source.clone())),
        ("total", told.total.into()),
        ("unlinked", told.unlinked.into()),
        ("last_24h", told.recent.into()),
        ("unlinked_24h", told.recent_unlinked.into()),
        ("latest", told.latest_at.map(Millis::to_rfc3339_millis).into()),
        ("parse_failed", told.unread.into()),
        ("schema_drift", told.drifted.into()),
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

/// JSON as the ledger keeps it.
fn read(text: &str) -> Value<'static> {
    let limits = Limits { bytes_max: usize::MAX, depth_max: json::DEPTH_CEILING };
    json::parse(text.as_bytes(), &limits).map(Value::into_owned).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_is_read_on_from_where_it_ended() {
        assert_eq!(after("1770843725:rnd-1"), Some((1_770_843_725, "rnd-1".to_owned())));
        for wrong in ["", "x:y", "5"] {
            assert_eq!(after(wrong), None, "{wrong}");
        }
    }
}
