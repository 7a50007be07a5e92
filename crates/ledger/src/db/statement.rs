//! SQL statements, one `.sql` file each.
//!
//! A statement that both databases understand is in `queries/`, with `$n` parameters. Where the dialects
//! differ there are two files of one name, in `sqlite/queries/` and `postgres/queries/`.

/// A statement in the dialects of both databases.
#[derive(Debug)]
pub(crate) struct Statement {
    #[cfg(feature = "postgres")]
    postgres: &'static str,
    sqlite: &'static str,
}

impl Statement {
    pub(crate) const fn new(sqlite: &'static str, postgres: &'static str) -> Self {
        #[cfg(not(feature = "postgres"))]
        let _ = postgres;
        Self {
            #[cfg(feature = "postgres")]
            postgres,
            sqlite,
        }
    }

    #[cfg(feature = "postgres")]
    pub(crate) const fn postgres(&self) -> &'static str {
        self.postgres
    }

    pub(crate) const fn sqlite(&self) -> &'static str {
        self.sqlite
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
            $crate::db::shared_for_sqlite!($file),
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

/// The text of a shared statement for SQLite, with `?n` instead of `$n`.
macro_rules! shared_for_sqlite {
    ($file:literal) => {{
        const SHARED: &str =
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/src/queries/", $file, ".sql"));
        const NUMBERED: [u8; SHARED.len()] = $crate::db::numbered_with_question_marks(SHARED);
        const TEXT: &str = match std::str::from_utf8(&NUMBERED) {
            Ok(text) => text,
            Err(_) => panic!("only ASCII characters are replaced"),
        };
        TEXT
    }};
}
pub(crate) use shared_for_sqlite;

/// Replaces `$1` with `?1`. JSON paths such as `$.name` stay.
pub(crate) const fn numbered_with_question_marks<const N: usize>(sql: &str) -> [u8; N] {
    let letters = sql.as_bytes();
    let mut rewritten = [0; N];
    let mut at = 0;
    while at < N {
        let is_param = letters[at] == b'$' && at + 1 < N && letters[at + 1].is_ascii_digit();
        rewritten[at] = if is_param { b'?' } else { letters[at] };
        at += 1;
    }
    rewritten
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_rewritten_and_json_paths_are_not() {
        const SQL: &str = "SELECT a ->> '$.b' FROM t WHERE c = $1 AND d = $12";
        let rewritten: [u8; SQL.len()] = numbered_with_question_marks(SQL);
        assert_eq!(&rewritten, b"SELECT a ->> '$.b' FROM t WHERE c = ?1 AND d = ?12");
    }
}
