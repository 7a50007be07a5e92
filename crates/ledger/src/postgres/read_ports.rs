//! What only this ledger reads: its keys, its size and its gates.

use admit_core::{Key, Seq};
use tokio_postgres::Row;

use super::conn::{Columns, Conn, Result};
use super::{PostgresLedger, PostgresReader, sql};
use crate::port::{GateStatus, Status};
use crate::tables::receipt::{CompleteStatus, ReceiptBackend};

impl ReceiptBackend for PostgresLedger {
    fn ledger_tag(&self) -> u32 {
        self.readers.tag()
    }

    fn find_key(conn: &Conn, key: &Key) -> Result<Option<Seq>> {
        find_key(conn, key)
    }

    fn complete_status(&self) -> CompleteStatus<Conn> {
        Box::new(complete_status)
    }
}

impl ReceiptBackend for PostgresReader {
    fn ledger_tag(&self) -> u32 {
        self.readers.tag()
    }

    fn find_key(conn: &Conn, key: &Key) -> Result<Option<Seq>> {
        find_key(conn, key)
    }

    fn complete_status(&self) -> CompleteStatus<Conn> {
        Box::new(complete_status)
    }
}

fn find_key(conn: &Conn, key: &Key) -> Result<Option<Seq>> {
    let row = conn.query_opt(sql!(shared "key_find"), &[&&key.as_bytes()[..]])?;
    row.map(|row| row.seq("seq")).transpose()
}

/// Adds the size of the tables and the gates. Free space is not known without reading the files.
fn complete_status(conn: &Conn, status: &mut Status) -> Result<()> {
    status.bytes = conn.query_one(sql!("size"), &[])?.num("bytes")?;
    status.gates = conn.query(sql!("gates"), &[])?.iter().map(gate).collect::<Result<_>>()?;
    Ok(())
}

fn gate(row: &Row) -> Result<GateStatus> {
    Ok(GateStatus {
        id: row.text("owner")?,
        epoch: row.num("epoch")?,
        since: row.millis("started_at")?,
        lease_until: row.millis("lease_until")?,
        is_alive: row.val("is_alive")?,
    })
}
