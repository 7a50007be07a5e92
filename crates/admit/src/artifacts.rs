//! The one place that opens artifacts: `artifacts.url` says where.

use std::sync::Arc;

use admit_artifacts::Artifacts;
use admit_artifacts::local::{self, LocalArtifacts};
use admit_gate::ingest::WriteBehind;

use crate::config::{ArtifactsPlace, Config};
use crate::output::{Failure, with_cause};

/// The artifacts that the config names, for writing.
pub(crate) fn open(config: &Config) -> Result<Arc<dyn Artifacts>, Failure> {
    match config.artifacts_place().map_err(Failure::usage)? {
        ArtifactsPlace::Folder(root) => {
            let opened = LocalArtifacts::open(local::Options::new(root));
            Ok(Arc::new(opened.map_err(|error| with_cause(&error))?))
        }
        #[cfg(feature = "s3")]
        ArtifactsPlace::Bucket(place) => {
            let opened = S3Artifacts::open(options(config, place));
            Ok(Arc::new(opened.map_err(|error| with_cause(&error))?))
        }
    }
}

/// The artifacts that the config names, for reading only.
pub(crate) fn open_reading(config: &Config) -> Result<Arc<dyn Artifacts>, Failure> {
    match config.artifacts_place().map_err(Failure::usage)? {
        ArtifactsPlace::Folder(root) => {
            Ok(Arc::new(LocalArtifacts::open_read_only(local::Options::new(root))))
        }
        #[cfg(feature = "s3")]
        ArtifactsPlace::Bucket(place) => {
            let opened = S3Artifacts::open_read_only(options(config, place));
            Ok(Arc::new(opened.map_err(|error| with_cause(&error))?))
        }
    }
}

/// Whether receipts are written behind their replies, and how far.
pub(crate) fn behind(config: &Config) -> Result<Option<WriteBehind>, Failure> {
    match config.artifacts_place().map_err(Failure::usage)? {
        ArtifactsPlace::Folder(_) => Ok(None),
        #[cfg(feature = "s3")]
        ArtifactsPlace::Bucket(_) => Ok(Some(WriteBehind {
            documents_max: config.artifacts.s3.behind_max,
            room_wait: std::time::Duration::from_millis(config.artifacts.s3.behind_wait_ms),
        })),
    }
}

#[cfg(feature = "s3")]
use admit_artifacts::s3::S3Artifacts;

#[cfg(feature = "s3")]
fn options(config: &Config, place: admit_artifacts::s3::S3Location) -> admit_artifacts::s3::Options {
    admit_artifacts::s3::Options {
        access: config.s3_access(),
        in_flight: config.artifacts.s3.in_flight_max,
        ..admit_artifacts::s3::Options::new(place, Arc::new(admit_gate::SystemClock))
    }
}
