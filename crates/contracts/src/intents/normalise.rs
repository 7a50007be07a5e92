//! Rules that turn a packet into one action, or into the reason why there is none. Pure.

use admit_core::Millis;
use admit_core::json::{Object, Value};
use jiff::tz::TimeZone;

use super::due;
use super::packet::{present, text};
use super::paths::ActionName;
use super::python_values::{number, trimmed};

/// Characters of a note used as its title if it has none.
const TITLE_CHARS_MAX: usize = 80;

/// The only supported list.
const SHOPPING_LIST: &str = "shopping_list";

/// Inputs of the rules besides the packet.
pub(super) struct PlanRules<'r> {
    pub(super) confidence_min: f64,
    pub(super) zone: &'r TimeZone,
    pub(super) now: Millis,
}

/// Planned action.
#[derive(Debug, PartialEq)]
pub(super) struct Action {
    pub(super) name: ActionName,
    pub(super) payload: Object<'static>,
}

/// Reason why no action is planned, as in the reply.
#[derive(Debug, PartialEq)]
pub(super) struct PlanRefusal {
    pub(super) code: &'static str,
    pub(super) message: String,
    pub(super) details: Object<'static>,
}

/// Plans the action for a valid packet.
pub(super) fn plan(packet: &Object<'_>, rules: &PlanRules<'_>) -> Result<Action, PlanRefusal> {
    check_confidence(packet, rules.confidence_min)?;
    let none = Object::new();
    let fields = present(packet, "fields").and_then(Value::as_object).unwrap_or(&none);
    let target = present(packet, "target").and_then(Value::as_object).unwrap_or(&none);
    match (text(target, "kind"), text(packet, "intent_type")) {
        (Some("list"), _) => add_to_list(packet, fields, target),
        (Some("notes"), _) => capture_note(packet, fields),
        (_, Some("create_task")) => create_task(packet, fields, rules),
        (_, Some("update_task")) => update_task(fields, rules),
        (kind, intent_type) => Err(PlanRefusal {
            code: "UNSUPPORTED_INTENT_TYPE",
            message: "there is no rule for this type of intent".to_owned(),
            details: Object::from_iter([
                ("intent_type", intent_type.map(str::to_owned).into()),
                ("target_kind", kind.map(str::to_owned).into()),
            ]),
        }),
    }
}

fn check_confidence(packet: &Object<'_>, confidence_min: f64) -> Result<(), PlanRefusal> {
    let Some(confidence) = present(packet, "confidence").and_then(number) else { return Ok(()) };
    // NaN compares false with everything, so it passes.
    if confidence.is_nan() || confidence >= confidence_min {
        return Ok(());
    }
    let written = match present(packet, "confidence") {
        Some(value @ (Value::Int(_) | Value::Float(_))) => value.clone().into_owned(),
        _ if confidence.is_finite() => confidence.into(),
        _ => confidence.to_string().into(),
    };
    Err(PlanRefusal {
        code: "POLICY_LOW_CONFIDENCE",
        message: "the confidence of the packet is below the threshold".to_owned(),
        details: Object::from_iter([("confidence", written), ("threshold", confidence_min.into())]),
    })
}

fn add_to_list(
    packet: &Object<'_>,
    fields: &Object<'_>,
    target: &Object<'_>,
) -> Result<Action, PlanRefusal> {
    if text(target, "key") != Some(SHOPPING_LIST) {
        return Err(invalid(
            "target.key",
            "there is no such list; the one there is: shopping_list",
        ));
    }
    let item = first_text(packet, fields, &["item", "title"])?
        .ok_or_else(|| invalid("fields.item", "the item to add is missing"))?;
    let payload = Object::from_iter([
        ("list_key", SHOPPING_LIST.into()),
        ("item", trimmed(item).to_owned().into()),
        ("notes", or_null(fields, "notes")),
    ]);
    Ok(Action { name: ActionName::ListAddItem, payload })
}

fn capture_note(packet: &Object<'_>, fields: &Object<'_>) -> Result<Action, PlanRefusal> {
    let content = first_text(packet, fields, &["content", "note"])?
        .ok_or_else(|| invalid("fields.content", "the text of the note is missing"))?;
    let content = trimmed(content);
    let title = match optional_text(fields, "title")? {
        Some(title) => title.to_owned(),
        None => content.chars().take(TITLE_CHARS_MAX).collect(),
    };
    let payload = Object::from_iter([
        ("title", title.into()),
        ("content", content.to_owned().into()),
        ("tags", or_null(fields, "tags")),
    ]);
    Ok(Action { name: ActionName::NoteCapture, payload })
}

fn create_task(
    packet: &Object<'_>,
    fields: &Object<'_>,
    rules: &PlanRules<'_>,
) -> Result<Action, PlanRefusal> {
    let title = optional_text(fields, "title")?
        .or_else(|| text(packet, "title"))
        .ok_or_else(|| invalid("fields.title", "a task needs a title"))?;
    let mut payload = Object::from_iter([("title", title.to_owned().into())]);
    let project = ["project", "project_id"]
        .into_iter()
        .filter_map(|name| present(fields, name))
        .find(|value| value.as_str() != Some(""));
    for (name, value) in [
        ("status", present(fields, "status")),
        ("priority", present(fields, "priority")),
        ("project", project),
    ] {
        if let Some(value) = value {
            payload.push(name, value.clone().into_owned());
        }
    }
    if let Some(value) = present(fields, "due") {
        payload.push("due", due_of(value, rules)?);
    }
    Ok(Action { name: ActionName::TasksCreate, payload })
}

fn update_task(fields: &Object<'_>, rules: &PlanRules<'_>) -> Result<Action, PlanRefusal> {
    const IDS: [&str; 2] = ["task_id", "notion_page_id"];
    let Some(id) = IDS.iter().find_map(|name| text(fields, name)) else {
        return Err(PlanRefusal {
            code: "POLICY_MISSING_TASK_ID",
            message: "an update must name its task".to_owned(),
            details: field("fields.task_id"),
        });
    };
    let nested = present(fields, "patch").and_then(Value::as_object);
    let mut patch = Object::new();
    for name in ["status", "priority", "due"] {
        let value = present(fields, name).or_else(|| present(nested?, name));
        match value {
            None => {}
            Some(value) if name == "due" => patch.push(name, due_of(value, rules)?),
            Some(value) => patch.push(name, value.clone().into_owned()),
        }
    }
    if patch.is_empty() {
        return Err(PlanRefusal {
            code: "VALIDATION_ERROR",
            message: "No updatable fields provided".to_owned(),
            details: field("fields"),
        });
    }
    let payload =
        Object::from_iter([("notion_page_id", id.to_owned().into()), ("patch", patch.into())]);
    Ok(Action { name: ActionName::TasksUpdate, payload })
}

/// Resolves a due date; a value that is not a text stays as it is.
fn due_of(value: &Value<'_>, rules: &PlanRules<'_>) -> Result<Value<'static>, PlanRefusal> {
    let expected =
        "must be an ISO date or time, today, tomorrow, a weekday, next <weekday> or next week";
    let Some(text) = value.as_str() else { return Ok(value.clone().into_owned()) };
    due::resolve(text, rules.zone, rules.now)
        .map(Value::from)
        .ok_or_else(|| invalid("fields.due", expected))
}

/// Value of a field of any type; null if missing, so that the payload always contains it.
fn or_null(fields: &Object<'_>, name: &str) -> Value<'static> {
    fields.get(name).map_or(Value::Null, |value| value.clone().into_owned())
}

/// First of the named fields that is not blank, else `natural_language`.
fn first_text<'o>(
    packet: &'o Object<'_>,
    fields: &'o Object<'_>,
    names: &[&'static str],
) -> Result<Option<&'o str>, PlanRefusal> {
    for name in names {
        if let Some(found) = optional_text(fields, name)? {
            return Ok(Some(found));
        }
    }
    Ok(text(packet, "natural_language"))
}

fn optional_text<'o>(fields: &'o Object<'_>, name: &str) -> Result<Option<&'o str>, PlanRefusal> {
    match present(fields, name) {
        None => Ok(None),
        Some(Value::String(text)) => {
            Ok(Some(text.as_ref()).filter(|text| !trimmed(text).is_empty()))
        }
        Some(_) => Err(invalid(&format!("fields.{name}"), "must be a text")),
    }
}

fn invalid(at: &str, message: &str) -> PlanRefusal {
    PlanRefusal {
        code: "VALIDATION_ERROR",
        message: format!("{at}: {message}"),
        details: field(at),
    }
}

fn field(name: &str) -> Object<'static> {
    Object::from_iter([("field", name.to_owned().into())])
}

#[cfg(test)]
mod tests {
    use admit_core::json::{Limits, parse, write_object};

    use super::*;

    /// Result for a packet with these members, on Thursday 2026-02-19 in London.
    fn planned(members: &str) -> String {
        let packet = format!(r#"{{"kind":"intent",{members}}}"#);
        let value = parse(packet.as_bytes(), &Limits::default()).unwrap();
        let zone = TimeZone::get("Europe/London").unwrap();
        let rules = PlanRules { confidence_min: 0.75, zone: &zone, now: Millis(1_771_524_842_123) };
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

    /// Members of a packet, and the result.
    const RULES: &[(&str, &str)] = &[
        (
            r#""target":{"kind":"list","key":"shopping_list"},"fields":{"item":"milk","notes":"2 l"}"#,
            r#"notion.list.add_item {"list_key":"shopping_list","item":"milk","notes":"2 l"}"#,
        ),
        (
            r#""target":{"kind":"list","key":"shopping_list"},"fields":{"title":"eggs"},"natural_language":"x""#,
            r#"notion.list.add_item {"list_key":"shopping_list","item":"eggs","notes":null}"#,
        ),
        (
            r#""target":{"kind":"list","key":"shopping_list"},"natural_language":" buy tea\t""#,
            r#"notion.list.add_item {"list_key":"shopping_list","item":"buy tea","notes":null}"#,
        ),
        (
            r#""target":{"kind":"list","key":"shopping_list"},"fields":{"item":" "}"#,
            r#"VALIDATION_ERROR {"field":"fields.item"}"#,
        ),
        (
            r#""target":{"kind":"list","key":"shopping_list"},"natural_language":"\u001c ""#,
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
            r#""target":{"kind":"notes"},"fields":{"content":" c ","title":"t"}"#,
            r#"notion.note.capture {"title":"t","content":"c","tags":null}"#,
        ),
        (r#""target":{"kind":"notes"}"#, r#"VALIDATION_ERROR {"field":"fields.content"}"#),
        (
            r#""target":{"kind":"notes"},"fields":{"note":"n","tags":"a"}"#,
            r#"notion.note.capture {"title":"n","content":"n","tags":"a"}"#,
        ),
        (
            r#""intent_type":"create_task","fields":{"title":"t","status":"todo","priority":1,"project":"p","due":"tomorrow"}"#,
            r#"notion.tasks.create {"title":"t","status":"todo","priority":1,"project":"p","due":"2026-02-20"}"#,
        ),
        (
            r#""intent_type":"create_task","title":"of the packet","fields":{"project":"","project_id":7,"due":5}"#,
            r#"notion.tasks.create {"title":"of the packet","project":7,"due":5}"#,
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
            r#"notion.tasks.update {"notion_page_id":"p1","patch":{"status":"done","due":"2026-03-02"}}"#,
        ),
        (
            r#""intent_type":"update_task","fields":{"notion_page_id":"p2","priority":[1],"x":2,"patch":{"priority":3,"status":"x"}}"#,
            r#"notion.tasks.update {"notion_page_id":"p2","patch":{"status":"x","priority":[1]}}"#,
        ),
        (
            r#""intent_type":"update_task","fields":{"status":"done"}"#,
            r#"POLICY_MISSING_TASK_ID {"field":"fields.task_id"}"#,
        ),
        (
            r#""intent_type":"update_task","fields":{"task_id":"p1","title":"new","status":null}"#,
            r#"VALIDATION_ERROR {"field":"fields"}"#,
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
    fn a_packet_below_the_confidence_threshold_is_not_executed() {
        let with = |confidence: &str| {
            planned(&format!(
                r#""confidence":{confidence},"intent_type":"create_task","fields":{{"title":"t"}}"#
            ))
        };
        assert_eq!(with("0.74"), r#"POLICY_LOW_CONFIDENCE {"confidence":0.74,"threshold":0.75}"#);
        assert_eq!(
            with(r#"" 0.5 ""#),
            r#"POLICY_LOW_CONFIDENCE {"confidence":0.5,"threshold":0.75}"#
        );
        assert_eq!(with("0"), r#"POLICY_LOW_CONFIDENCE {"confidence":0,"threshold":0.75}"#);
        for sure in ["0.75", "1", "null", "\"0.8\"", "\"high\"", "\"nan\""] {
            assert_eq!(with(sure), r#"notion.tasks.create {"title":"t"}"#, "{sure}");
        }
    }

    #[test]
    fn a_note_without_a_title_gets_its_first_eighty_characters_as_title() {
        let content = "ä".repeat(100);
        let plan =
            planned(&format!(r#""target":{{"kind":"notes"}},"fields":{{"note":"{content}"}}"#));
        assert!(plan.contains(&format!(r#""title":"{}""#, "ä".repeat(80))), "{plan}");
    }
}
