//! `[artifacts]`: location of receipts and run files, and settings of buckets.

use std::path::PathBuf;

use admit_contracts::ingestion_gate::ArtifactPaths;
use serde::{Deserialize, Serialize};

use super::ingestion::folder;
use super::{Config, ConfigError};

/// `[artifacts]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ArtifactsConfig {
    /// `file:` for `artifacts` in the data folder, `file:PATH` for another folder, `s3://BUCKET/PREFIX` for
    /// a bucket.
    pub(crate) url: String,
    /// `[artifacts.s3]`
    pub(crate) s3: S3Config,
}

impl Default for ArtifactsConfig {
    fn default() -> Self {
        Self { url: "file:".to_owned(), s3: S3Config::default() }
    }
}

/// `[artifacts.s3]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct S3Config {
    /// Endpoint, such as `http://127.0.0.1:8333`. Empty: AWS.
    pub(crate) endpoint: String,
    /// Region. Empty: from the environment, else `us-east-1`.
    pub(crate) region: String,
    /// Whether to use path-style URLs.
    pub(crate) path_style: bool,
    /// Request timeout, in milliseconds.
    pub(crate) request_timeout_ms: u64,
    /// Maximum attempts per request.
    pub(crate) tries_max: u32,
    /// Maximum requests in flight.
    pub(crate) in_flight_max: usize,
    /// Capacity of the write-behind queue, in receipts and records.
    pub(crate) behind_max: usize,
    /// Longest wait of a reply for a full write-behind queue, in milliseconds.
    pub(crate) behind_wait_ms: u64,
}

impl Default for S3Config {
    fn default() -> Self {
        Self {
            endpoint: String::new(),
            region: String::new(),
            path_style: false,
            request_timeout_ms: 10_000,
            tries_max: 4,
            in_flight_max: 64,
            behind_max: 10_000,
            behind_wait_ms: 5_000,
        }
    }
}

/// Location of artifacts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArtifactsLocation {
    /// In a folder.
    Folder(PathBuf),
    /// In a bucket.
    #[cfg(feature = "s3")]
    Bucket(admit_artifacts::s3::S3Location),
}

impl ArtifactsLocation {
    /// Path layout of runs.
    pub(crate) fn paths(&self) -> ArtifactPaths {
        match self {
            Self::Folder(root) => ArtifactPaths::local(&root.to_string_lossy()),
            #[cfg(feature = "s3")]
            Self::Bucket(_) => ArtifactPaths::top(),
        }
    }
}

impl Config {
    /// Parses `artifacts.url`.
    pub(crate) fn artifacts_location(&self) -> Result<ArtifactsLocation, ConfigError> {
        let url = &self.artifacts.url;
        if !url.starts_with("s3:") {
            return folder("artifacts", url, &self.data).map(ArtifactsLocation::Folder);
        }
        #[cfg(feature = "s3")]
        return match admit_artifacts::s3::S3Location::parse(url) {
            Ok(place) => Ok(ArtifactsLocation::Bucket(place)),
            // The URL is not shown, because it may contain credentials.
            Err(error) => Err(ConfigError::Rule(format!("artifacts.url: {error}"))),
        };
        #[cfg(not(feature = "s3"))]
        Err(ConfigError::Rule(
            "artifacts.url \"s3:…\" is not supported by this build; build admit with --features s3, or \
             with --features full for all adapters"
                .to_owned(),
        ))
    }

    /// Cross-field validation.
    pub(super) fn check_artifacts(&self) -> Result<(), ConfigError> {
        let S3Config { request_timeout_ms, tries_max, in_flight_max, behind_max, .. } =
            &self.artifacts.s3;
        for (key, is_zero) in [
            ("request_timeout_ms", *request_timeout_ms == 0),
            ("tries_max", *tries_max == 0),
            ("in_flight_max", *in_flight_max == 0),
            ("behind_max", *behind_max == 0),
        ] {
            if is_zero {
                let message = format!("artifacts.s3.{key} must be greater than 0");
                return Err(ConfigError::Rule(message));
            }
        }
        if *in_flight_max > 1_000 || *behind_max > 1_000_000 {
            let message =
                "artifacts.s3: in_flight_max must be at most 1000, behind_max at most 1000000";
            return Err(ConfigError::Rule(message.to_owned()));
        }
        self.artifacts_location().map(drop)
    }

    /// Access settings of buckets, for artifacts and packs.
    #[cfg(feature = "s3")]
    pub(crate) fn s3_access(&self) -> admit_artifacts::s3::Access {
        let s3 = &self.artifacts.s3;
        let text = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        admit_artifacts::s3::Access {
            endpoint: text(&s3.endpoint),
            region: text(&s3.region),
            path_style: s3.path_style,
            keys: None,
            request_max: std::time::Duration::from_millis(s3.request_timeout_ms),
            tries_max: std::num::NonZeroU32::new(s3.tries_max).unwrap_or(std::num::NonZeroU32::MIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn place(url: &str) -> Result<ArtifactsLocation, ConfigError> {
        let mut config = Config::default();
        config.artifacts.url = url.to_owned();
        config.artifacts_location()
    }

    #[test]
    fn artifacts_are_in_a_folder_or_in_a_bucket() {
        let folder = |path: &str| ArtifactsLocation::Folder(Path::new(path).to_owned());
        assert_eq!(place("file:///srv/receipts").unwrap(), folder("/srv/receipts"));
        assert_eq!(place("file:").unwrap(), folder("./admit-data/artifacts"));
        let error = place("ftp://me:hush@host").unwrap_err().to_string();
        assert!(!error.contains("hush"), "{error}");
        let bucket = place("s3://receipts/prod");
        #[cfg(feature = "s3")]
        assert_eq!(bucket.unwrap().paths().receipt("r", "x"), "r/ig/receipts/x.json");
        #[cfg(not(feature = "s3"))]
        assert!(bucket.unwrap_err().to_string().contains("--features s3"));
        let error = place("s3://key:hush@receipts").unwrap_err().to_string();
        assert!(!error.contains("hush"), "{error}");
    }
}
