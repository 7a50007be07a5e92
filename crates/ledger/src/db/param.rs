//! Parameters of statements.

use admit_core::{Millis, Seq};

/// A parameter, in one of the types that both databases store.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Param<'a> {
    Int(Option<i64>),
    Text(Option<&'a str>),
    Bytes(Option<&'a [u8]>),
    /// A JSON array of texts on SQLite, for `json_each`; a `text[]` on PostgreSQL.
    Texts(&'a [&'a str]),
    /// The same of integers; a `bigint[]` on PostgreSQL.
    Ints(&'a [i64]),
}

/// The parameters of one call, each converted by [`Param::from`].
macro_rules! params {
    ($($value:expr),* $(,)?) => { &[$($crate::db::Param::from($value)),*] };
}
pub(crate) use params;

/// The parameters of one row of a call, each converted by [`Param::from`].
macro_rules! row {
    ($($value:expr),* $(,)?) => { vec![$($crate::db::Param::from($value)),*] };
}
pub(crate) use row;

/// Unsigned numbers for an array parameter.
pub(crate) fn ints(numbers: impl IntoIterator<Item = u64>) -> Vec<i64> {
    numbers.into_iter().map(signed).collect()
}

/// Numbers of the ledger never come near the sign.
fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

macro_rules! int_params {
    ($($type:ty: |$value:ident| $int:expr;)+) => {$(
        impl From<$type> for Param<'_> {
            fn from($value: $type) -> Self {
                Self::Int(Some($int))
            }
        }

        impl From<Option<$type>> for Param<'_> {
            fn from(value: Option<$type>) -> Self {
                Self::Int(value.map(|$value| $int))
            }
        }
    )+};
}

int_params! {
    i64: |number| number;
    u64: |number| signed(number);
    u32: |number| i64::from(number);
    usize: |number| i64::try_from(number).unwrap_or(i64::MAX);
    bool: |flag| i64::from(flag);
    Seq: |seq| signed(seq.0);
    Millis: |at| at.0;
}

impl<'a> From<&'a str> for Param<'a> {
    fn from(text: &'a str) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<Option<&'a str>> for Param<'a> {
    fn from(text: Option<&'a str>) -> Self {
        Self::Text(text)
    }
}

impl<'a> From<&'a String> for Param<'a> {
    fn from(text: &'a String) -> Self {
        Self::Text(Some(text))
    }
}

impl<'a> From<&'a Option<String>> for Param<'a> {
    fn from(text: &'a Option<String>) -> Self {
        Self::Text(text.as_deref())
    }
}

impl<'a> From<&'a [u8]> for Param<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl<'a> From<Option<&'a [u8]>> for Param<'a> {
    fn from(bytes: Option<&'a [u8]>) -> Self {
        Self::Bytes(bytes)
    }
}

impl<'a> From<&'a [u8; 32]> for Param<'a> {
    fn from(bytes: &'a [u8; 32]) -> Self {
        Self::Bytes(Some(bytes))
    }
}

impl<'a> From<&'a [&'a str]> for Param<'a> {
    fn from(texts: &'a [&'a str]) -> Self {
        Self::Texts(texts)
    }
}

impl<'a> From<&'a [i64]> for Param<'a> {
    fn from(numbers: &'a [i64]) -> Self {
        Self::Ints(numbers)
    }
}

impl<'a> From<&'a Vec<i64>> for Param<'a> {
    fn from(numbers: &'a Vec<i64>) -> Self {
        Self::Ints(numbers)
    }
}
