//! What to do about a disagreement, by the check that found it.

const RESTORE: &str = "something other than a gate changed the ledger: restore it from a backup";

/// Whether it is about files that `admit repair` writes again, where the ledger can make them.
pub(super) fn is_repairable(check: &str) -> bool {
    matches!(check, "artifact" | "closure" | "scenario")
}

/// The next step.
pub(super) fn action(check: &str) -> &'static str {
    match check {
        "structure" => {
            "where only an index is named, REINDEX; else restore a backup or rescue what is readable \
             with sqlite3's .recover"
        }
        check if is_repairable(check) => {
            "admit repair writes the files again that the ledger can make; a row or a file that is not \
             the ledger's comes from a backup or goes"
        }
        "document" => {
            "restore the document from a backup; a file of a receipt is written again by admit repair"
        }
        "bus" => {
            "look at the message with the tools of the bus; do not delete it, and compare the ledger \
             with a backup"
        }
        "inbox" => {
            "set the row to what its admission says, or delete it where no admission made it; the \
             claims in the ledger decide what is handed out"
        }
        "record" => {
            "where a rule or the match window has changed, admit rounds relink decides open links again; \
             else something other than a gate changed the ledger: restore it from a backup"
        }
        "publication" => "see admit rounds reconcile, and compare the ledger with a backup",
        _ => RESTORE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_says_what_to_do() {
        for check in ["structure", "row", "key", "artifact", "bus", "inbox", "effect", "run"] {
            assert!(action(check).len() > 20, "{check}");
        }
    }
}
