//! SQL statements, one `.sql` file each.
//!
//! A statement that both databases understand is in `queries/`, with `$n` parameters. Where the dialects
//! differ there are two files of one name, in `sqlite/queries/` and `postgres/queries/`.

use std::sync::OnceLock;

/// A statement in the dialects of both databases.
#[derive(Debug)]
pub(crate) struct Statement {
    #[cfg(feature = "postgres")]
    postgres: &'static str,
    sqlite: &'static str,
    /// The text for SQLite: `?n` instead of `$n`.
    rewritten: OnceLock<String>,
}

impl Statement {
    pub(crate) const fn new(sqlite: &'static str, postgres: &'static str) -> Self {
        #[cfg(not(feature = "postgres"))]
        let _ = postgres;
        Self {
            #[cfg(feature = "postgres")]
            postgres,
            sqlite,
            rewritten: OnceLock::new(),
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) fn postgres(&self) -> &'static str {
        self.postgres
    }

    pub(crate) fn sqlite(&self) -> &str {
        self.rewritten.get_or_init(|| numbered_with_question_marks(self.sqlite))
    }
}

/// Declares statements: `shared` ones have one file, `each` ones a file for each database.
macro_rules! statements {
    ($($kind:ident $name:ident $file:literal;)+) => {
        $(pub(crate) static $name: $crate::db::Statement =
            $crate::db::statements!(@$kind $file);)+
    };
    (@shared $file:literal) => {
        $crate::db::Statement::new(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/queries/", $file, ".sql")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/queries/", $file, ".sql")),
        )
    };
    (@each $file:literal) => {
        $crate::db::Statement::new(
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/sqlite/queries/", $file, ".sql")),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/postgres/queries/", $file, ".sql")),
        )
    };
}
pub(crate) use statements;

/// Replaces `$1` with `?1`. JSON paths such as `$.name` stay.
fn numbered_with_question_marks(sql: &str) -> String {
    let mut rewritten = String::with_capacity(sql.len());
    let mut letters = sql.chars().peekable();
    while let Some(letter) = letters.next() {
        let is_param = letter == '$' && letters.peek().is_some_and(char::is_ascii_digit);
        rewritten.push(if is_param { '?' } else { letter });
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_rewritten_and_json_paths_are_not() {
        let statement = Statement::new("SELECT a ->> '$.b' FROM t WHERE c = $1 AND d = $12", "");
        assert_eq!(statement.sqlite(), "SELECT a ->> '$.b' FROM t WHERE c = ?1 AND d = ?12");
    }
}
