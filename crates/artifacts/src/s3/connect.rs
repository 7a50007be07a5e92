//! S3 location and access: address, endpoint, credentials.
//!
//! Credentials come from the environment only, in the order of [`Access`]; they are never part of
//! an address and never printed.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::{ClientOptions, RetryConfig};

use crate::path;

/// Maximum length of a prefix.
const PREFIX_BYTES_MAX: usize = 800;

/// Location in a bucket: `s3://bucket` or `s3://bucket/prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct S3Location {
    bucket: String,
    /// Without leading and trailing slash; empty for the root of the bucket.
    prefix: String,
}

/// Invalid S3 location.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum S3LocationError {
    /// Wrong scheme.
    #[error("it must begin with s3://")]
    Scheme,
    /// Contains `@`, `?` or `#`: credentials and settings are not allowed in it.
    #[error("it must be s3://bucket/prefix without credentials, ? and #; see [artifacts]")]
    Extras,
    /// Invalid bucket name.
    #[error("the bucket must have 3 to 63 lower-case letters, digits, dots and hyphens")]
    Bucket,
    /// Invalid prefix.
    #[error(
        "the prefix must be at most 800 printable characters without // or names with a dot first"
    )]
    Prefix,
}

impl S3Location {
    /// Parses `s3://bucket/prefix`.
    ///
    /// # Errors
    /// Returns the reason why it is invalid.
    pub fn parse(url: &str) -> Result<Self, S3LocationError> {
        let rest = url.strip_prefix("s3://").ok_or(S3LocationError::Scheme)?;
        if rest.contains(['@', '?', '#']) {
            return Err(S3LocationError::Extras);
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_inner = |byte: u8| is_plain(byte) || matches!(byte, b'.' | b'-');
        let ends = [bucket.bytes().next(), bucket.bytes().last()];
        let is_bucket = (3..=63).contains(&bucket.len())
            && bucket.bytes().all(is_inner)
            && ends.into_iter().flatten().all(is_plain);
        if !is_bucket {
            return Err(S3LocationError::Bucket);
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !prefix.is_empty() && (prefix.len() > PREFIX_BYTES_MAX || path::check(prefix).is_err()) {
            return Err(S3LocationError::Prefix);
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// Prefix without leading and trailing slash; empty for the root of the bucket.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// Object key of a path below this location.
    pub fn key(&self, path: &str) -> String {
        match (self.prefix.is_empty(), path.is_empty()) {
            (true, _) => path.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}/{path}", self.prefix),
        }
    }

    /// Path of an object key below this location.
    pub fn path<'k>(&self, key: &'k str) -> Option<&'k str> {
        match self.prefix.is_empty() {
            true => Some(key),
            false => key.strip_prefix(&self.prefix)?.strip_prefix('/'),
        }
    }

    /// Whether `other` is this location or below it.
    pub fn holds(&self, other: &Self) -> bool {
        let below = match self.prefix.is_empty() {
            true => true,
            false => other
                .prefix
                .strip_prefix(&self.prefix)
                .is_some_and(|rest| rest.is_empty() || rest.starts_with('/')),
        };
        self.bucket == other.bucket && below
    }
}

impl fmt::Display for S3Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix.is_empty() {
            true => write!(f, "s3://{}", self.bucket),
            false => write!(f, "s3://{}/{}", self.bucket, self.prefix),
        }
    }
}

/// Access to S3. Credentials are searched in this order: `AWS_ACCESS_KEY_ID` with
/// `AWS_SECRET_ACCESS_KEY` (and `AWS_SESSION_TOKEN`), a web identity token file
/// (`AWS_WEB_IDENTITY_TOKEN_FILE` with `AWS_ROLE_ARN`), the container's credentials
/// (`AWS_CONTAINER_CREDENTIALS_…`), the machine's metadata service. Profiles are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Endpoint, if not AWS; `http://` only for local services.
    pub endpoint: Option<String>,
    /// Region; `None` uses `AWS_REGION` or `AWS_DEFAULT_REGION`, else `us-east-1`.
    pub region: Option<String>,
    /// Whether the bucket is part of the path instead of the host, as required by most other
    /// services.
    pub path_style: bool,
    /// Explicit credentials instead of the environment.
    pub keys: Option<S3Keys>,
    /// Request timeout.
    pub request_max: Duration,
    /// Maximum number of attempts per request.
    pub tries_max: NonZeroU32,
}

/// Access key and secret; the secret is never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct S3Keys {
    id: String,
    secret: String,
}

impl S3Keys {
    /// Creates a key pair.
    pub fn new(id: impl Into<String>, secret: impl Into<String>) -> Self {
        Self { id: id.into(), secret: secret.into() }
    }
}

impl fmt::Debug for S3Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Keys").field("id", &self.id).finish_non_exhaustive()
    }
}

impl Default for Access {
    fn default() -> Self {
        Self {
            endpoint: None,
            region: None,
            path_style: false,
            keys: None,
            request_max: Duration::from_secs(10),
            tries_max: NonZeroU32::new(4).unwrap_or(NonZeroU32::MIN),
        }
    }
}

/// Error in the settings of a bucket.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The longest key would exceed the limit of S3.
    #[error("the prefix of artifacts may have at most {bytes_max} characters")]
    LongPrefix {
        /// Limit.
        bytes_max: usize,
    },
    /// Invalid endpoint.
    #[error("the endpoint must be http://HOST:PORT or https://HOST:PORT without credentials")]
    Endpoint,
    /// Inconsistent settings.
    #[error("the bucket {bucket} cannot be set up")]
    Settings {
        /// Bucket.
        bucket: String,
        /// Cause.
        #[source]
        source: object_store::Error,
    },
}

/// Creates a client for one bucket. It connects with the first request.
///
/// # Errors
/// If the settings are invalid.
pub fn connect(place: &S3Location, access: &Access) -> Result<Arc<AmazonS3>, OpenError> {
    let mut client = ClientOptions::new()
        .with_timeout(access.request_max)
        .with_connect_timeout(access.request_max.min(Duration::from_secs(5)));
    // Retries are done here, see `tries_max`: the client must not repeat a request that may have
    // succeeded.
    let retry = RetryConfig { max_retries: 0, ..RetryConfig::default() };
    let mut builder = AmazonS3Builder::from_env()
        .with_bucket_name(place.bucket())
        .with_virtual_hosted_style_request(!access.path_style)
        .with_conditional_put(S3ConditionalPut::ETagMatch)
        .with_retry(retry);
    if let Some(endpoint) = &access.endpoint {
        let endpoint = endpoint.trim_end_matches('/');
        let host = endpoint.strip_prefix("https://").or_else(|| endpoint.strip_prefix("http://"));
        let is_host = |host: &str| !host.is_empty() && !host.contains(['/', '@', '?', '#']);
        if !host.is_some_and(is_host) {
            return Err(OpenError::Endpoint);
        }
        client = client.with_allow_http(endpoint.starts_with("http://"));
        // Without path style the bucket is part of the host, also of a custom one.
        builder = match (access.path_style, host) {
            (false, Some(host)) => {
                let scheme = &endpoint[..endpoint.len() - host.len()];
                builder.with_endpoint(format!("{scheme}{}.{host}", place.bucket()))
            }
            _ => builder.with_endpoint(endpoint),
        };
    }
    if let Some(S3Keys { id, secret }) = &access.keys {
        builder = builder.with_access_key_id(id).with_secret_access_key(secret);
    }
    if let Some(region) = &access.region {
        builder = builder.with_region(region);
    }
    let built = builder.with_client_options(client).build();
    let built = built
        .map_err(|source| OpenError::Settings { bucket: place.bucket().to_owned(), source })?;
    Ok(Arc::new(built))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_location_is_a_bucket_with_an_optional_prefix() {
        for (url, key, shown) in [
            ("s3://receipts", "run/a", "s3://receipts"),
            ("s3://receipts/", "run/a", "s3://receipts"),
            ("s3://my.receipts-1/eu/prod", "eu/prod/run/a", "s3://my.receipts-1/eu/prod"),
            ("s3://my.receipts-1/eu/prod/", "eu/prod/run/a", "s3://my.receipts-1/eu/prod"),
        ] {
            let place = S3Location::parse(url).unwrap();
            assert_eq!(place.key("run/a"), key);
            assert_eq!(place.path(key), Some("run/a"));
            assert_eq!(place.to_string(), shown);
        }
        let place = S3Location::parse("s3://receipts/eu").unwrap();
        assert_eq!(place.path("europe/run/a"), None);
    }

    #[test]
    fn a_location_contains_locations_below_it() {
        let place = |url| S3Location::parse(url).unwrap();
        assert!(place("s3://packs/a").holds(&place("s3://packs/a/b")));
        assert!(place("s3://packs/a").holds(&place("s3://packs/a")));
        assert!(place("s3://packs").holds(&place("s3://packs/a")));
        for other in ["s3://packs/ab", "s3://packs", "s3://other/a"] {
            assert!(!place("s3://packs/a").holds(&place(other)), "{other}");
        }
    }

    #[test]
    fn an_invalid_location_gives_a_reason_without_secrets() {
        let long = format!("s3://receipts/{}", "p/".repeat(401));
        for (url, expected) in [
            ("file:///receipts", S3LocationError::Scheme),
            ("s3://key:secret@receipts/a", S3LocationError::Extras),
            ("s3://receipts/a?versionId=1", S3LocationError::Extras),
            ("s3://ab", S3LocationError::Bucket),
            ("s3://Receipts", S3LocationError::Bucket),
            ("s3:///a", S3LocationError::Bucket),
            ("s3://-receipts", S3LocationError::Bucket),
            ("s3://receipts//a", S3LocationError::Prefix),
            ("s3://receipts/../a", S3LocationError::Prefix),
            (&long, S3LocationError::Prefix),
        ] {
            assert_eq!(S3Location::parse(url), Err(expected), "{url}");
        }
    }

    #[test]
    fn an_endpoint_is_a_host_and_nothing_else() {
        let place = S3Location::parse("s3://receipts").unwrap();
        for endpoint in
            ["ftp://host", "host:1", "http://user:pass@host", "http://host/path", "http://"]
        {
            let access = Access { endpoint: Some(endpoint.to_owned()), ..Access::default() };
            assert!(matches!(connect(&place, &access), Err(OpenError::Endpoint)), "{endpoint}");
        }
        for path_style in [true, false] {
            let endpoint = Some("http://127.0.0.1:8333/".to_owned());
            let access = Access { endpoint, path_style, ..Access::default() };
            assert!(connect(&place, &access).is_ok());
        }
    }
}
