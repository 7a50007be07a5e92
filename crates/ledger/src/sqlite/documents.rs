//! Projected documents inside a transaction: loaded once, changed in memory, written once.

use std::collections::BTreeMap;
use std::sync::Arc;

use admit_core::projection::ProjectionState;
use admit_core::{EntityId, Projection, ProjectionError, Seq};
use rusqlite::{Connection, OptionalExtension};

use super::queries;

/// The documents a batch has touched, in name order.
#[derive(Default)]
pub(super) struct Documents {
    touched: BTreeMap<EntityId, TouchedDocument>,
}

struct TouchedDocument {
    document: Box<dyn ProjectionState>,
    changed_by: Option<Seq>,
}

/// Why projections could not be applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    #[error(transparent)]
    Projection(#[from] ProjectionError),
}

impl Documents {
    /// Applies the projections of the event at `seq`.
    pub(super) fn apply(
        &mut self,
        conn: &Connection,
        projections: &[Arc<dyn Projection>],
        seq: Seq,
    ) -> Result<(), ApplyError> {
        for projection in projections {
            let id = projection.entity();
            if !self.touched.contains_key(&id) {
                let document = projection.load(stored(conn, &id)?.as_deref())?;
                self.touched.insert(id.clone(), TouchedDocument { document, changed_by: None });
            }
            let touched = self.touched.get_mut(&id).expect("it was inserted above");
            projection.apply(touched.document.as_mut())?;
            touched.changed_by = Some(seq);
        }
        Ok(())
    }

    /// Writes changed documents.
    pub(super) fn write(&self, conn: &Connection) -> rusqlite::Result<()> {
        let mut put = conn.prepare_cached(queries::DOCUMENT_PUT)?;
        for (id, touched) in &self.touched {
            if let Some(seq) = touched.changed_by {
                put.execute((id.projection, &id.entity, seq.0, touched.document.to_text()))?;
            }
        }
        Ok(())
    }
}

fn stored(conn: &Connection, id: &EntityId) -> rusqlite::Result<Option<String>> {
    conn.prepare_cached(queries::DOCUMENT_GET)?
        .query_row((id.projection, &id.entity), |row| row.get(0))
        .optional()
}
