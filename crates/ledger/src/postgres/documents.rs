//! Projected documents inside a transaction: loaded once, changed in memory, written once.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use admit_core::projection::Document;
use admit_core::{EntityId, Projection, ProjectionError, Seq};
use tokio_postgres::Row;

use super::conn::{self, Ask, Columns, Conn, Result, big};
use super::{sql, text};

/// The documents a batch has touched, in the order of their names.
#[derive(Default)]
pub(super) struct Documents {
    /// As they stand in the ledger, as far as somebody has asked.
    stored: BTreeMap<EntityId, Option<String>>,
    touched: BTreeMap<EntityId, Touched>,
    projections: Vec<&'static str>,
    entities: Vec<String>,
}

struct Touched {
    document: Box<dyn Document>,
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
    /// Documents of which it is known that they will be needed.
    pub(super) fn wanting(ids: BTreeSet<EntityId>) -> Self {
        let mut documents = Self::default();
        for id in ids {
            documents.projections.push(id.projection);
            documents.entities.push(text::kept(&id.entity).into_owned());
            documents.stored.insert(id, None);
        }
        documents
    }

    /// What has to be asked for them.
    pub(super) fn asks(&self) -> Vec<Ask<'_>> {
        if self.entities.is_empty() {
            return Vec::new();
        }
        vec![Ask::new(sql!("documents_get"), vec![&self.projections, &self.entities])]
    }

    pub(super) fn answered(&mut self, answers: &[Vec<Row>]) -> Result<()> {
        for row in answers.iter().flatten() {
            // Which of those that were asked for, counted from one.
            let at = usize::try_from(row.num("at")?).unwrap_or(usize::MAX).wrapping_sub(1);
            let Some(&projection) = self.projections.get(at) else { continue };
            let entity = text::shown(self.entities[at].clone());
            self.stored.insert(EntityId { projection, entity }, Some(row.text("text")?));
        }
        Ok(())
    }

    /// Applies the projections of the event that will stand at `seq`.
    pub(super) fn apply(
        &mut self,
        conn: &Conn,
        projections: &[Arc<dyn Projection>],
        seq: Seq,
    ) -> std::result::Result<(), ApplyError> {
        for projection in projections {
            let id = projection.entity();
            if !self.touched.contains_key(&id) {
                let document = projection.load(self.stored(conn, &id)?.as_deref())?;
                self.touched.insert(id.clone(), Touched { document, changed_by: None });
            }
            let touched = self.touched.get_mut(&id).expect("it was put there just now");
            projection.apply(touched.document.as_mut())?;
            touched.changed_by = Some(seq);
        }
        Ok(())
    }

    /// Writes what has changed, in the order of the names.
    pub(super) fn flush(&self, conn: &Conn) -> Result<()> {
        let (mut projections, mut entities) = (Vec::new(), Vec::new());
        let (mut seqs, mut texts) = (Vec::new(), Vec::new());
        for (id, touched) in &self.touched {
            let Some(seq) = touched.changed_by else { continue };
            projections.push(id.projection);
            entities.push(text::kept(&id.entity));
            seqs.push(big(seq.0));
            texts.push(text::kept(&touched.document.to_text()).into_owned());
        }
        if !seqs.is_empty() {
            conn.execute(sql!("documents_put"), &[&projections, &entities, &seqs, &texts])?;
        }
        Ok(())
    }

    fn stored(&self, conn: &Conn, id: &EntityId) -> Result<Option<String>> {
        match self.stored.get(id) {
            Some(stored) => Ok(stored.clone()),
            None => get(conn, id),
        }
    }
}

/// One document as it stands.
pub(super) fn get(conn: &Conn, id: &EntityId) -> Result<Option<String>> {
    let (projection, entity) = (id.projection, text::kept(&id.entity));
    let row = conn.query_opt(sql!("document_get"), &[&projection, &entity])?;
    row.map(|row| row.text("text")).transpose()
}
