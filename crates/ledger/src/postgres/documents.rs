//! Projected documents inside a transaction: loaded once, changed in memory, written once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use admit_core::projection::ProjectionState;
use admit_core::{EntityId, Projection, ProjectionError, Seq};
use tokio_postgres::Row;

use super::conn::{self, Columns, Conn, OwnedParam, OwnedQuery, Result, big};
use super::{nul_escape, sql};
use crate::tables::receipt;

/// The documents a batch has touched, in name order.
#[derive(Default)]
pub(super) struct Documents {
    /// Loaded documents.
    stored: BTreeMap<EntityId, Option<String>>,
    touched: BTreeMap<EntityId, TouchedDocument>,
    projections: Vec<&'static str>,
    entities: Vec<String>,
}

struct TouchedDocument {
    document: Box<dyn ProjectionState>,
    changed_by: Option<Seq>,
}

/// Why projections could not be applied.
#[derive(Debug, thiserror::Error)]
pub(super) enum ApplyError {
    #[error(transparent)]
    Server(#[from] conn::Error),
    #[error(transparent)]
    Projection(#[from] ProjectionError),
}

impl Documents {
    /// Registers documents that will be needed.
    pub(super) fn expecting(ids: BTreeSet<EntityId>) -> Self {
        let mut documents = Self::default();
        for id in ids {
            documents.projections.push(id.projection);
            documents.entities.push(nul_escape::escape(&id.entity).into_owned());
            documents.stored.insert(id, None);
        }
        documents
    }

    /// The queries to load them.
    pub(super) fn queries(&self) -> Vec<OwnedQuery<'_>> {
        if self.entities.is_empty() {
            return Vec::new();
        }
        let ids: Vec<OwnedParam<'_>> = vec![Box::new(&self.projections), Box::new(&self.entities)];
        vec![OwnedQuery::new(sql!("documents_get"), ids)]
    }

    pub(super) fn load(&mut self, answers: &[Vec<Row>]) -> Result<()> {
        for row in answers.iter().flatten() {
            // Index into the requested documents, counted from one.
            let at = usize::try_from(row.num("at")?).unwrap_or(usize::MAX).wrapping_sub(1);
            let Some(&projection) = self.projections.get(at) else { continue };
            let entity = nul_escape::unescape(self.entities[at].clone());
            self.stored.insert(EntityId { projection, entity }, Some(row.text("text")?));
        }
        Ok(())
    }

    /// Applies the projections of the event at `seq`.
    pub(super) fn apply(
        &mut self,
        conn: &Conn,
        projections: &[Arc<dyn Projection>],
        seq: Seq,
    ) -> Result<(), ApplyError> {
        for projection in projections {
            let id = projection.entity();
            if !self.touched.contains_key(&id) {
                let document = projection.load(self.stored(conn, &id)?.as_deref())?;
                self.touched.insert(id.clone(), TouchedDocument { document, changed_by: None });
            }
            let touched = self.touched.get_mut(&id).expect("it was inserted above");
            projection.apply(touched.document.as_mut())?;
            touched.changed_by = Some(seq);
        }
        Ok(())
    }

    /// Adds the documents of another lookup.
    pub(super) fn absorb(&mut self, other: Self) {
        self.stored.extend(other.stored);
    }

    /// The statement that writes changed documents, in name order.
    pub(super) fn writes(&self) -> Option<OwnedQuery<'_>> {
        let (mut projections, mut entities) = (Vec::new(), Vec::new());
        let (mut seqs, mut texts) = (Vec::new(), Vec::new());
        for (id, touched) in &self.touched {
            let Some(seq) = touched.changed_by else { continue };
            projections.push(id.projection);
            entities.push(nul_escape::escape(&id.entity));
            seqs.push(big(seq.0));
            texts.push(nul_escape::escape(&touched.document.to_text()).into_owned());
        }
        let is_changed = !seqs.is_empty();
        let columns: Vec<OwnedParam<'_>> =
            vec![Box::new(projections), Box::new(entities), Box::new(seqs), Box::new(texts)];
        is_changed.then(|| OwnedQuery::new(sql!("documents_put"), columns))
    }

    fn stored(&self, conn: &Conn, id: &EntityId) -> Result<Option<String>> {
        match self.stored.get(id) {
            Some(stored) => Ok(stored.clone()),
            None => receipt::document(conn, id),
        }
    }
}
