//! The rules that turn a packet into one action, or say why there is none. Pure.

use admit_core::Millis;
use admit_core::json::{Object, Value};
use jiff::tz::TimeZone;

use super::due;
use super::paths::ActionName;
use super::shape::{given, text};

/// Characters of a note that become its title when it has none.
const TITLE_CHARS_MAX: usize = 80;

/// The only list there is.
const SHOPPING_LIST: &str = "shopping_list";

/// What the rules need to know besides the packet.
pub(super) struct Rules<'r> {
    pub(super) confidence_min: f64,
    pub(super) zone: &'r TimeZone,
    pub(super) now: Millis,
}

/// What is to be done.
#[derive(Debug, PartialEq)]
pub(super) struct Action {
    pub(super) name: ActionName,
    pub(super) payload: Object<'static>,
}

/// Why nothing is to be done, in the words of the contract.
#[derive(Debug, PartialEq)]
pub(super) struct Refusal {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) details: Object<'static>,
}

/// The action that a packet of the right shape asks for.
pub(super) fn plan(packet: &Object<'_>, rules: &Rules<'_>) -> Result<Action, Refusal> {
    check_confidence(packet, rules.confidence_min)?;
    let none = Object::new();
    let fields = given(packet, "fields").and_then(Value::as_object).unwrap_or(&none);
    let target = given(packet, "target").and_then(Value::as_object).unwrap_or(&none);
    match (text(target, "kind"), text(packet, "intent_type")) {
        (Some("list"), _) => add_to_list(packet, fields, target),
        (Some("notes"), _) => capture_note(packet, fields),
        (_, Some("create_task")) => create_task(fields, rules),
        (_, Some("update_task")) => update_task(fields, rules),
        (kind, intent_type) => Err(Refusal {
            code: "UNSUPPORTED_INTENT_TYPE",
            message: "there is no rule for this type of intent".to_owned(),
            details: Object::from_iter([
                ("intent_type", intent_type.map(str::to_owned).into()),
                ("target_kind", kind.map(str::to_owned).into()),
            ]),
        }),
    }
}

fn check_confidence(packet: &Object<'_>, confidence_min: f64) -> Result<(), Refusal> {
    let Some(confidence) = given(packet, "confidence") else { return Ok(()) };
    if confidence.as_f64().is_some_and(|sure| sure >= confidence_min) {
        return Ok(());
    }
    Err(Refusal {
        code: "POLICY_LOW_CONFIDENCE",
        message: "the packet is not sure enough of itself to be acted on".to_owned(),
        details: Object::from_iter([
            ("confidence", confidence.clone().into_owned()),
            ("threshold", confidence_min.into()),
        ]),
    })
}

fn add_to_list(
    packet: &Object<'_>,
    fields: &Object<'_>,
    target: &Object<'_>,
) -> Result<Action, Refusal> {
    if text(target, "key") != Some(SHOPPING_LIST) {
        return Err(invalid(
            "target.key",
            "there is no such list; the one there is: shopping_list",
        ));
    }
    let item = first_text(packet, fields, &["item", "title"])?
        .ok_or_else(|| invalid("fields.item", "what to add is missing"))?;
    let mut payload =
        Object::from_iter([("list_key", SHOPPING_LIST.into()), ("item", item.to_owned().into())]);
    if let Some(notes) = optional_text(fields, "notes")? {
        payload.push("notes", notes.to_owned());
    }
    Ok(Action { name: ActionName::ListAddItem, payload })
}

fn capture_note(packet: &Object<'_>, fields: &Object<'_>) -> Result<Action, Refusal> {
    let content = first_text(packet, fields, &["content", "note"])?
        .ok_or_else(|| invalid("fields.content", "what to note is missing"))?;
    let title = match optional_text(fields, "title")? {
        Some(title) => title.to_owned(),
        None => content.chars().take(TITLE_CHARS_MAX).collect(),
    };
    let mut payload =
        Object::from_iter([("title", title.into()), ("content", content.to_owned().into())]);
    if let Some(tags) = given(fields, "tags") {
        let all_texts =
            tags.as_array().is_some_and(|tags| tags.iter().all(|tag| tag.as_str().is_some()));
        if !all_texts {
            return Err(invalid("fields.tags", "tags are a list of texts"));
        }
        payload.push("tags", tags.clone().into_owned());
    }
    Ok(Action { name: ActionName::NoteCapture, payload })
}

fn create_task(fields: &Object<'_>, rules: &Rules<'_>) -> Result<Action, Refusal> {
    let title = optional_text(fields, "title")?
        .ok_or_else(|| invalid("fields.title", "a task needs a title"))?;
    let mut payload = Object::from_iter([("title", title.to_owned().into())]);
    for (name, pointer) in [
        ("status", "fields.status"),
        ("priority", "fields.priority"),
        ("project", "fields.project"),
    ] {
        match given(fields, name) {
            None => {}
            Some(value @ (Value::String(_) | Value::Int(_) | Value::Float(_))) => {
                payload.push(name, value.clone().into_owned());
            }
            Some(_) => return Err(invalid(pointer, "must be a text or a number")),
        }
    }
    if let Some(value) = given(fields, "due") {
        payload.push("due", due_of(value, rules)?);
    }
    Ok(Action { name: ActionName::TasksCreate, payload })
}

fn update_task(fields: &Object<'_>, rules: &Rules<'_>) -> Result<Action, Refusal> {
    const IDS: [&str; 2] = ["task_id", "notion_page_id"];
    let Some(id) = IDS.iter().find_map(|name| text(fields, name)) else {
        return Err(Refusal {
            code: "POLICY_MISSING_TASK_ID",
            message: "an update must name its task".to_owned(),
            details: field("fields.task_id"),
        });
    };
    let changes = match given(fields, "patch") {
        None => fields,
        Some(Value::Object(patch)) => patch,
        Some(_) => return Err(invalid("fields.patch", "must be an object")),
    };
    let mut patch = Object::new();
    for (name, value) in changes.iter().filter(|(name, _)| !IDS.contains(name)) {
        // The last of repeated members counts, as it does in the key.
        patch.remove(name);
        match (name, value) {
            ("due", Value::String(_)) => patch.push("due", due_of(value, rules)?),
            (name, value) => patch.push(name.to_owned(), value.clone().into_owned()),
        }
    }
    if patch.is_empty() {
        return Err(invalid("fields.patch", "an update must change something"));
    }
    let payload =
        Object::from_iter([("notion_page_id", id.to_owned().into()), ("patch", patch.into())]);
    Ok(Action { name: ActionName::TasksUpdate, payload })
}

fn due_of(value: &Value<'_>, rules: &Rules<'_>) -> Result<String, Refusal> {
    let wanted =
        "must be an ISO date or time, today, tomorrow, a weekday, next <weekday> or next week";
    value
        .as_str()
        .and_then(|text| due::resolve(text, rules.zone, rules.now))
        .ok_or_else(|| invalid("fields.due", wanted))
}

/// The first of the named fields that says something, else what was said in plain language.
fn first_text<'o>(
    packet: &'o Object<'_>,
    fields: &'o Object<'_>,
    names: &[&'static str],
) -> Result<Option<&'o str>, Refusal> {
    for name in names {
        if let Some(said) = optional_text(fields, name)? {
            return Ok(Some(said));
        }
    }
    Ok(text(packet, "natural_language"))
}

fn optional_text<'o>(fields: &'o Object<'_>, name: &str) -> Result<Option<&'o str>, Refusal> {
    match given(fields, name) {
        None => Ok(None),
        Some(Value::String(said)) => Ok(Some(said.as_ref()).filter(|said| !said.trim().is_empty())),
        Some(_) => Err(invalid(&format!("fields.{name}"), "must be a text")),
    }
}

fn invalid(at: &str, message: &str) -> Refusal {
    Refusal { code: "VALIDATION_ERROR", message: format!("{at}: {message}"), details: field(at) }
}

fn field(name: &str) -> Object<'static> {
    Object::from_iter([("field", name.to_owned().into())])
}

#[cfg(test)]
mod tests {
    use admit_core::json::{Limits, parse, write_object};

    use super::*;

    /// What becomes of a packet with these members, on Thursday 2026-02-19 in London.
    fn planned(members: &str) -> String {
        let packet = format!(r#"{{"kind":"intent",{members}}}"#);
        let value = parse(packet.as_bytes(), &Limits::default()).unwrap();
        let zone = TimeZone::get("Europe/London").unwrap();
        let rules = Rules { confidence_min: 0.75, zone: &zone, now: Millis(1_771_524_842_123) };
        let written = |object: &Object<'_>| {
            let mut text = Vec::new();
            write_object(object, &mut text);
            String::from_utf8(text).unwrap()
        };
        match plan(value.as_object().unwrap(), &rules) {
            Ok(action) => format!("{} {}", action.name.as_str(), written(&action.payload)),
            Err(refusal) => format!("{} {}", refusal.code, written(&refusal.details)),
        }
    }

    /// Members of a packet, and what becomes of it.
    const RULES: &[(&str, &str)] = &[
        (
            r#""target":{"kind":"list","key":"shopping_list"},"fields":{"item":"milk","notes":"2 l"}"#,
            r#"notion.list.add_item {"list_key":"shopping_list","item":"milk","notes":"2 l"}"#,
        ),
        (
            r#""target":{"kind":"list","key":"shopping_list"},"fields":{"title":"eggs"},"natural_language":"x""#,
            r#"notion.list.add_item {"list_key":"shopping_list","item":"eggs"}"#,
        ),
        (
            r#""target":{"kind":"list","key":"shopping_list"},"natural_language":"buy tea""#,
            r#"notion.list.add_item {"list_key":"shopping_list","item":"buy tea"}"#,
        ),
        (
            r#""target":{"kind":"list","key":"shopping_list"},"fields":{"item":" "}"#,
            r#"VALIDATION_ERROR {"field":"fields.item"}"#,
        ),
        (
            r#""target":{"kind":"list","key":"films"},"fields":{"item":"x"}"#,
            r#"VALIDATION_ERROR {"field":"target.key"}"#,
        ),
        (
            r#""target":{"kind":"notes"},"fields":{"note":"n","tags":["a"]}"#,
            r#"notion.note.capture {"title":"n","content":"n","tags":["a"]}"#,
        ),
        (
            r#""target":{"kind":"notes"},"fields":{"content":"c","title":"t"}"#,
            r#"notion.note.capture {"title":"t","content":"c"}"#,
        ),
        (r#""target":{"kind":"notes"}"#, r#"VALIDATION_ERROR {"field":"fields.content"}"#),
        (
            r#""target":{"kind":"notes"},"fields":{"note":"n","tags":"a"}"#,
            r#"VALIDATION_ERROR {"field":"fields.tags"}"#,
        ),
        (
            r#""intent_type":"create_task","fields":{"title":"t","status":"todo","priority":1,"project":"p","due":"tomorrow"}"#,
            r#"notion.tasks.create {"title":"t","status":"todo","priority":1,"project":"p","due":"2026-02-20"}"#,
        ),
        (
            r#""intent_type":"create_task","fields":{"due":"today"}"#,
            r#"VALIDATION_ERROR {"field":"fields.title"}"#,
        ),
        (
            r#""intent_type":"create_task","fields":{"title":"t","due":"soon"}"#,
            r#"VALIDATION_ERROR {"field":"fields.due"}"#,
        ),
        (
            r#""intent_type":"create_task","fields":{"title":5}"#,
            r#"VALIDATION_ERROR {"field":"fields.title"}"#,
        ),
        (
            r#""intent_type":"update_task","fields":{"task_id":"p1","status":"done","due":"next week"}"#,
            r#"notion.tasks.update {"notion_page_id":"p1","patch":{"status":"done","due":"2026-02-23"}}"#,
        ),
        (
            r#""intent_type":"update_task","fields":{"notion_page_id":"p2","patch":{"title":"new"}}"#,
            r#"notion.tasks.update {"notion_page_id":"p2","patch":{"title":"new"}}"#,
        ),
        (
            r#""intent_type":"update_task","fields":{"status":"done"}"#,
            r#"POLICY_MISSING_TASK_ID {"field":"fields.task_id"}"#,
        ),
        (
            r#""intent_type":"update_task","fields":{"task_id":"p1"}"#,
            r#"VALIDATION_ERROR {"field":"fields.patch"}"#,
        ),
        (
            r#""intent_type":"dance""#,
            r#"UNSUPPORTED_INTENT_TYPE {"intent_type":"dance","target_kind":null}"#,
        ),
        (
            r#""target":{"kind":"calendar"}"#,
            r#"UNSUPPORTED_INTENT_TYPE {"intent_type":null,"target_kind":"calendar"}"#,
        ),
    ];

    #[test]
    fn every_rule_of_the_sheet_holds() {
        for (members, expected) in RULES {
            assert_eq!(planned(members), *expected, "{members}");
        }
    }

    #[test]
    fn a_packet_that_is_not_sure_is_not_acted_on() {
        let with = |confidence: &str| {
            planned(&format!(
                r#""confidence":{confidence},"intent_type":"create_task","fields":{{"title":"t"}}"#
            ))
        };
        assert_eq!(with("0.74"), r#"POLICY_LOW_CONFIDENCE {"confidence":0.74,"threshold":0.75}"#);
        assert_eq!(with("0"), r#"POLICY_LOW_CONFIDENCE {"confidence":0,"threshold":0.75}"#);
        for sure in ["0.75", "1", "null"] {
            assert_eq!(with(sure), r#"notion.tasks.create {"title":"t"}"#, "{sure}");
        }
    }

    #[test]
    fn a_note_without_a_title_is_called_by_its_first_eighty_characters() {
        let content = "ä".repeat(100);
        let said =
            planned(&format!(r#""target":{{"kind":"notes"}},"fields":{{"note":"{content}"}}"#));
        assert!(said.contains(&format!(r#""title":"{}""#, "ä".repeat(80))), "{said}");
    }
}
