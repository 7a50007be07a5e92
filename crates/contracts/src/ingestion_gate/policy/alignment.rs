//! Alignment check: the three event types of the decision loop must be configured together.

use super::class_map::ClassMap;
use super::schema_policy::SchemaPolicy;
use super::{PolicyError, PolicyFiles};
use crate::ingestion_gate::envelope::PINS;

/// Error code of an incomplete configuration, as the platform spells it.
pub(super) const FAILED: &str = "IG_RTLD_POLICY_ALIGNMENT_FAILED";

/// Event types and their classes.
const LOOP: [(&str, &str); 3] = [
    ("decision_response", "rtdl_decision"),
    ("action_intent", "rtdl_action_intent"),
    ("action_outcome", "rtdl_action_outcome"),
];

/// Schema version that all of them must allow.
const VERSION: &str = "v1";

/// If one of them is configured anywhere, all must be configured everywhere, in the same way.
pub(super) fn check(
    files: &PolicyFiles,
    classes: &ClassMap,
    schemas: &SchemaPolicy,
    errors: &mut Vec<PolicyError>,
) {
    let is_there =
        |event_type| classes.mapped(event_type).is_some() || schemas.entry(event_type).is_some();
    if !LOOP.iter().any(|(event_type, _)| is_there(event_type)) {
        return;
    }
    let mut report = |path: &str, line: usize, message: String| {
        let message = format!("{FAILED}: {message}");
        errors.push(PolicyError { path: path.to_owned(), line, message });
    };
    for (event_type, class) in LOOP {
        let path = &files.class_map.path;
        match classes.mapped(event_type) {
            None => report(path, 1, format!("{event_type} is not mapped to a class")),
            Some((mapped, line)) if mapped != class => {
                report(path, line, format!("{event_type} must be of class {class}"));
            }
            Some(_) => {}
        }
        let line = classes.line_of(class).unwrap_or(1);
        let pins = classes.required_pins(class);
        for pin in PINS {
            let (is_wanted, is_there) = (pin != "run_id", pins.iter().any(|one| one == pin));
            if is_wanted && !is_there {
                report(path, line, format!("class {class} must require {pin}"));
            } else if !is_wanted && is_there {
                report(path, line, format!("class {class} must not require {pin}"));
            }
        }
        let path = &files.schema_policy.path;
        let Some(entry) = schemas.entry(event_type) else {
            report(path, 1, format!("{event_type} has no policy"));
            continue;
        };
        if entry.class != class {
            report(path, entry.line, format!("{event_type} must be of class {class}"));
        }
        let takes = entry.allowed.as_ref().is_some_and(|all| all.iter().any(|one| one == VERSION));
        if !entry.version_required || !takes {
            let message = format!("{event_type} must require a version, and allow {VERSION}");
            report(path, entry.line, message);
        }
    }
}
