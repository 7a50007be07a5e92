//! `[artifacts]`: where receipts and the files of runs lie, and how a bucket is spoken to.

use std::path::PathBuf;

use admit_contracts::ingestion_gate::ArtifactPaths;
use serde::{Deserialize, Serialize};

use super::ingestion::folder;
use super::{Config, ConfigError};

/// `[artifacts]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct ArtifactsConfig {
    /// `file:` keeps them under `artifacts` in the data folder, `file:PATH` elsewhere;
    /// `s3://BUCKET/PREFIX` in a bucket.
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
    /// Where the service is, such as `http://127.0.0.1:8333`. Empty: at AWS.
    pub(crate) endpoint: String,
    /// The region. Empty: that of the environment, else `us-east-1`.
    pub(crate) region: String,
    /// Whether the bucket is named in the path and not in the host.
    pub(crate) path_style: bool,
    /// The longest a request may take, in milliseconds.
    pub(crate) request_timeout_ms: u64,
    /// How often a request is tried before it has failed.
    pub(crate) tries_max: u32,
    /// Requests on their way at once.
    pub(crate) in_flight_max: usize,
    /// Most receipts and records that wait to be written, behind their replies.
    pub(crate) behind_max: usize,
    /// How long a reply waits for a place among them, in milliseconds.
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

/// Where artifacts are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ArtifactsPlace {
    /// In a folder.
    Folder(PathBuf),
    /// In a bucket.
    #[cfg(feature = "s3")]
    Bucket(admit_artifacts::s3::S3Location),
}

impl ArtifactsPlace {
    /// How runs are laid out there.
    pub(crate) fn paths(&self) -> ArtifactPaths {
        match self {
            Self::Folder(root) => ArtifactPaths::local(&root.to_string_lossy()),
            #[cfg(feature = "s3")]
            Self::Bucket(_) => ArtifactPaths::top(),
        }
    }
}

impl Config {
    /// Where the artifacts are.
    pub(crate) fn artifacts_place(&self) -> Result<ArtifactsPlace, ConfigError> {
        let url = &self.artifacts.url;
        if !url.starts_with("s3:") {
            return folder("artifacts", url, &self.data).map(ArtifactsPlace::Folder);
        }
        #[cfg(feature = "s3")]
        return match admit_artifacts::s3::S3Location::parse(url) {
            Ok(place) => Ok(ArtifactsPlace::Bucket(place)),
            // It may hold credentials by mistake, so it is not shown.
            Err(error) => Err(ConfigError::Rule(format!("artifacts.url: {error}"))),
        };
        #[cfg(not(feature = "s3"))]
        Err(ConfigError::Rule(
            "artifacts.url \"s3:…\" is not in this build; build admit with --features s3, or with \
             --features full for everything"
                .to_owned(),
        ))
    }

    /// What no single value can break.
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
                let message = format!("artifacts.s3.{key} must be more than 0");
                return Err(ConfigError::Rule(message));
            }
        }
        if *in_flight_max > 1_000 || *behind_max > 1_000_000 {
            let message =
                "artifacts.s3: in_flight_max may be 1,000 and behind_max 1,000,000 at most";
            return Err(ConfigError::Rule(message.to_owned()));
        }
        self.artifacts_place().map(drop)
    }

    /// How buckets are reached, those of artifacts and those of packs.
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

    fn place(url: &str) -> Result<ArtifactsPlace, ConfigError> {
        let mut config = Config::default();
        config.artifacts.url = url.to_owned();
        config.artifacts_place()
    }

    #[test]
    fn artifacts_are_in_a_folder_or_in_a_bucket() {
        let folder = |path: &str| ArtifactsPlace::Folder(Path::new(path).to_owned());
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
