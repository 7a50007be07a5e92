//! The attached bus and artifact store of a ledger that no gate serves.

use super::connect::Connector;
use super::migrate::Schema;
use super::{OpenError, Options, connect_once, on_blocking_thread};
use crate::port::{Store, StoreId};
use crate::tables::attachment;

/// Records a store and returns the previously recorded one.
pub fn reattach(
    options: &Options,
    store: Store,
    id: StoreId,
) -> Result<Option<StoreId>, OpenError> {
    let connector = Connector::new(options)?;
    on_blocking_thread(|| {
        let (conn, place) = connect_once(&connector)?;
        Schema { place: &place, name: &options.schema }.check(&conn)?;
        let replaced = attachment::replace(&conn, store, id);
        replaced.map_err(|error| OpenError::Database { place, source: error.into() })
    })
}
