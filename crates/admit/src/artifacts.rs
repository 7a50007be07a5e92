//! Opens the artifact store of a config, a folder or a bucket, by `artifacts.url`.

use std::sync::Arc;

use admit_artifacts::Artifacts;
use admit_artifacts::local::{self, LocalArtifacts};
use admit_gate::ingest::WriteBehind;

use crate::config::{ArtifactsLocation, Config};
use crate::output::{Failure, with_cause};

/// Opens the artifact store for writing.
pub(crate) fn open(config: &Config) -> Result<Arc<dyn Artifacts>, Failure> {
    match config.artifacts_location().map_err(Failure::usage)? {
        ArtifactsLocation::Folder(root) => {
            let opened = LocalArtifacts::open(local::Options::new(root));
            Ok(Arc::new(opened.map_err(|error| with_cause(&error))?))
        }
        #[cfg(feature = "s3")]
        ArtifactsLocation::Bucket(place) => {
            let opened = S3Artifacts::open(options(config, place));
            Ok(Arc::new(opened.map_err(|error| with_cause(&error))?))
        }
    }
}

/// Opens the artifact store read-only.
pub(crate) fn open_read_only(config: &Config) -> Result<Arc<dyn Artifacts>, Failure> {
    match config.artifacts_location().map_err(Failure::usage)? {
        ArtifactsLocation::Folder(root) => {
            Ok(Arc::new(LocalArtifacts::open_read_only(local::Options::new(root))))
        }
        #[cfg(feature = "s3")]
        ArtifactsLocation::Bucket(place) => {
            let opened = S3Artifacts::open_read_only(options(config, place));
            Ok(Arc::new(opened.map_err(|error| with_cause(&error))?))
        }
    }
}

/// Write-behind settings of receipts; `None` if they are written before the reply.
pub(crate) fn write_behind(config: &Config) -> Result<Option<WriteBehind>, Failure> {
    match config.artifacts_location().map_err(Failure::usage)? {
        ArtifactsLocation::Folder(_) => Ok(None),
        #[cfg(feature = "s3")]
        ArtifactsLocation::Bucket(_) => Ok(Some(WriteBehind {
            documents_max: config.artifacts.s3.behind_max,
            room_wait: std::time::Duration::from_millis(config.artifacts.s3.behind_wait_ms),
        })),
    }
}

#[cfg(feature = "s3")]
use admit_artifacts::s3::S3Artifacts;

#[cfg(feature = "s3")]
fn options(
    config: &Config,
    place: admit_artifacts::s3::S3Location,
) -> admit_artifacts::s3::Options {
    admit_artifacts::s3::Options {
        access: config.s3_access(),
        in_flight: config.artifacts.s3.in_flight_max,
        ..admit_artifacts::s3::Options::new(place, Arc::new(admit_gate::SystemClock))
    }
}
