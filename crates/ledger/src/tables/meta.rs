//! Single values of the ledger, by name.

use crate::db::{Columns, Db, Param, params, statements};

statements! {
    shared ADD "meta_add";
    shared GET "meta_get";
    shared MAX "meta_max";
    shared PUT "meta_put";
    shared REMOVE "meta_remove";
}

/// Returns a number.
pub(crate) fn get<D: Db>(db: &D, name: &str) -> Result<Option<i64>, D::Error> {
    db.query_opt(&GET, params![name])?.map(|row| row.int("value")).transpose()
}

/// Returns a number that is never negative.
pub(crate) fn num<D: Db>(db: &D, name: &str) -> Result<Option<u64>, D::Error> {
    db.query_opt(&GET, params![name])?.map(|row| row.num("value")).transpose()
}

/// Stores a number.
pub(crate) fn put<D: Db>(
    db: &D,
    name: &str,
    value: impl Into<Param<'static>>,
) -> Result<(), D::Error> {
    let value: Param<'static> = value.into();
    db.execute(&PUT, params![name, value]).map(drop)
}

/// Stores a number unless a larger one is stored.
pub(crate) fn raise<D: Db>(
    db: &D,
    name: &str,
    value: impl Into<Param<'static>>,
) -> Result<(), D::Error> {
    let value: Param<'static> = value.into();
    db.execute(&MAX, params![name, value]).map(drop)
}

/// Adds to a number.
pub(crate) fn add<D: Db>(db: &D, name: &str, count: u64) -> Result<(), D::Error> {
    db.execute(&ADD, params![name, count]).map(drop)
}

pub(crate) fn remove<D: Db>(db: &D, name: &str) -> Result<(), D::Error> {
    db.execute(&REMOVE, params![name]).map(drop)
}
