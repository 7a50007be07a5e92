//! Advice for each disagreement of `admit verify`, by the check that found it.

const RESTORE: &str = "another program than a gate changed the ledger: restore it from a backup";

/// Whether `admit repair` can write the files that the check is about.
pub(super) fn is_repairable(check: &str) -> bool {
    matches!(check, "artifact" | "closure" | "scenario")
}

/// Next step for the operator.
pub(super) fn action(check: &str) -> &'static str {
    match check {
        "structure" => {
            "if only an index is named, REINDEX; otherwise restore a backup, or recover the readable \
             rows with sqlite3's .recover"
        }
        check if is_repairable(check) => {
            "admit repair writes the files that the ledger can regenerate; restore other files from a \
             backup, and move away files that are not in the ledger"
        }
        "document" => {
            "restore the document from a backup; admit repair writes the file of a receipt"
        }
        "bus" => {
            "inspect the message with the tools of the bus, do not delete it, and compare the ledger \
             with a backup"
        }
        "inbox" => {
            "set the row to the state of its admission, or delete it if it has no admission; the \
             claims in the ledger decide which events consumers get"
        }
        "record" => {
            "if a rule or the match window has changed, run admit rounds relink; otherwise another \
             program than a gate changed the ledger: restore it from a backup"
        }
        "publication" => "see admit reconcile, and compare the ledger with a backup",
        _ => RESTORE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_has_advice() {
        for check in ["structure", "row", "key", "artifact", "bus", "inbox", "effect", "run"] {
            assert!(action(check).len() > 20, "{check}");
        }
    }
}
