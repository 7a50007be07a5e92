//! Where a bucket is and how it is reached: the address, the endpoint, the credentials.
//!
//! Credentials come from the environment only, in the order of [`Access`]; they are never in an
//! address, and nothing here can print them.

use std::fmt;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use object_store::aws::{AmazonS3, AmazonS3Builder, S3ConditionalPut};
use object_store::{ClientOptions, RetryConfig};

use crate::path;

/// The longest prefix.
const PREFIX_BYTES_MAX: usize = 800;

/// A place in a bucket: `s3://bucket` or `s3://bucket/prefix`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    bucket: String,
    /// Without slashes at its ends; empty is the top of the bucket.
    prefix: String,
}

/// Why a text is not a place in a bucket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PlaceError {
    /// It begins with something else.
    #[error("it must begin with s3://")]
    Scheme,
    /// There is an `@`, a `?` or a `#` in it: credentials and settings have no place there.
    #[error("it must be s3://bucket/prefix without credentials, ? and #; see [artifacts]")]
    Extras,
    /// Not the name of a bucket.
    #[error("the bucket must have 3 to 63 lower-case letters, digits, dots and hyphens")]
    Bucket,
    /// Not a prefix.
    #[error(
        "the prefix must be at most 800 printable characters without // or names with a dot first"
    )]
    Prefix,
}

impl Place {
    /// Reads `s3://bucket/prefix`.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(url: &str) -> Result<Self, PlaceError> {
        let rest = url.strip_prefix("s3://").ok_or(PlaceError::Scheme)?;
        if rest.contains(['@', '?', '#']) {
            return Err(PlaceError::Extras);
        }
        let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
        let is_plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
        let is_inner = |byte: u8| is_plain(byte) || matches!(byte, b'.' | b'-');
        let ends = [bucket.bytes().next(), bucket.bytes().last()];
        let is_bucket = (3..=63).contains(&bucket.len())
            && bucket.bytes().all(is_inner)
            && ends.into_iter().flatten().all(is_plain);
        if !is_bucket {
            return Err(PlaceError::Bucket);
        }
        let prefix = prefix.strip_suffix('/').unwrap_or(prefix);
        if !prefix.is_empty() && (prefix.len() > PREFIX_BYTES_MAX || path::check(prefix).is_err()) {
            return Err(PlaceError::Prefix);
        }
        Ok(Self { bucket: bucket.to_owned(), prefix: prefix.to_owned() })
    }

    /// The prefix, without slashes at its ends; empty is the top of the bucket.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// The bucket.
    pub fn bucket(&self) -> &str {
        &self.bucket
    }

    /// The key of a path below it.
    pub fn key(&self, path: &str) -> String {
        match (self.prefix.is_empty(), path.is_empty()) {
            (true, _) => path.to_owned(),
            (false, true) => self.prefix.clone(),
            (false, false) => format!("{}/{path}", self.prefix),
        }
    }

    /// The path of a key below it.
    pub fn path<'k>(&self, key: &'k str) -> Option<&'k str> {
        match self.prefix.is_empty() {
            true => Some(key),
            false => key.strip_prefix(&self.prefix)?.strip_prefix('/'),
        }
    }

    /// Whether `other` is this place or below it.
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

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.prefix.is_empty() {
            true => write!(f, "s3://{}", self.bucket),
            false => write!(f, "s3://{}/{}", self.bucket, self.prefix),
        }
    }
}

/// How S3 is reached. Credentials are looked for in this order: `AWS_ACCESS_KEY_ID` with
/// `AWS_SECRET_ACCESS_KEY` (and `AWS_SESSION_TOKEN`), a web identity token file
/// (`AWS_WEB_IDENTITY_TOKEN_FILE` with `AWS_ROLE_ARN`), the container's credentials
/// (`AWS_CONTAINER_CREDENTIALS_…`), the machine's metadata service. Profiles are not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Access {
    /// Where the service is, if not at AWS; `http://` only for what is near.
    pub endpoint: Option<String>,
    /// The region; `None` takes `AWS_REGION` or `AWS_DEFAULT_REGION`, else `us-east-1`.
    pub region: Option<String>,
    /// Whether the bucket is named in the path and not in the host, as most other services want it.
    pub path_style: bool,
    /// These instead of whatever would be found.
    pub keys: Option<Keys>,
    /// The longest a request may take.
    pub request_max: Duration,
    /// How often a request is tried before it has failed.
    pub tries_max: NonZeroU32,
}

/// An access key and its secret, which is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Keys {
    id: String,
    secret: String,
}

impl Keys {
    /// A key and its secret.
    pub fn new(id: impl Into<String>, secret: impl Into<String>) -> Self {
        Self { id: id.into(), secret: secret.into() }
    }
}

impl fmt::Debug for Keys {
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

/// Why a bucket cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// With the longest path a key would be longer than S3 takes.
    #[error("the prefix of artifacts may have at most {bytes_max} characters")]
    LongPrefix {
        /// How many it may have.
        bytes_max: usize,
    },
    /// The endpoint is not an address.
    #[error("the endpoint must be http://HOST:PORT or https://HOST:PORT without credentials")]
    Endpoint,
    /// The settings do not fit together.
    #[error("the bucket {bucket} cannot be set up")]
    Settings {
        /// The bucket.
        bucket: String,
        /// The cause.
        #[source]
        source: object_store::Error,
    },
}

/// A client for one bucket. It connects with the first request.
///
/// # Errors
/// When the settings cannot be those of any service.
pub fn connect(place: &Place, access: &Access) -> Result<Arc<AmazonS3>, OpenError> {
    let mut client = ClientOptions::new()
        .with_timeout(access.request_max)
        .with_connect_timeout(access.request_max.min(Duration::from_secs(5)));
    // Every try is ours, see `tries_max`: nobody below repeats a request that may have landed.
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
        // Without path style the bucket is part of the host, also of a given one.
        builder = match (access.path_style, host) {
            (false, Some(host)) => {
                let scheme = &endpoint[..endpoint.len() - host.len()];
                builder.with_endpoint(format!("{scheme}{}.{host}", place.bucket()))
            }
            _ => builder.with_endpoint(endpoint),
        };
    }
    if let Some(Keys { id, secret }) = &access.keys {
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
    fn a_place_is_a_bucket_and_perhaps_a_prefix() {
        for (url, key, shown) in [
            ("s3://receipts", "run/a", "s3://receipts"),
            ("s3://receipts/", "run/a", "s3://receipts"),
            ("s3://my.receipts-1/eu/prod", "eu/prod/run/a", "s3://my.receipts-1/eu/prod"),
            ("s3://my.receipts-1/eu/prod/", "eu/prod/run/a", "s3://my.receipts-1/eu/prod"),
        ] {
            let place = Place::parse(url).unwrap();
            assert_eq!(place.key("run/a"), key);
            assert_eq!(place.path(key), Some("run/a"));
            assert_eq!(place.to_string(), shown);
        }
        let place = Place::parse("s3://receipts/eu").unwrap();
        assert_eq!(place.path("europe/run/a"), None);
    }

    #[test]
    fn a_place_holds_what_is_below_it() {
        let place = |url| Place::parse(url).unwrap();
        assert!(place("s3://packs/a").holds(&place("s3://packs/a/b")));
        assert!(place("s3://packs/a").holds(&place("s3://packs/a")));
        assert!(place("s3://packs").holds(&place("s3://packs/a")));
        for other in ["s3://packs/ab", "s3://packs", "s3://other/a"] {
            assert!(!place("s3://packs/a").holds(&place(other)), "{other}");
        }
    }

    #[test]
    fn what_is_no_place_says_why_and_shows_no_secret() {
        let long = format!("s3://receipts/{}", "p/".repeat(401));
        for (url, expected) in [
            ("file:///receipts", PlaceError::Scheme),
            ("s3://key:secret@receipts/a", PlaceError::Extras),
            ("s3://receipts/a?versionId=1", PlaceError::Extras),
            ("s3://ab", PlaceError::Bucket),
            ("s3://Receipts", PlaceError::Bucket),
            ("s3:///a", PlaceError::Bucket),
            ("s3://-receipts", PlaceError::Bucket),
            ("s3://receipts//a", PlaceError::Prefix),
            ("s3://receipts/../a", PlaceError::Prefix),
            (&long, PlaceError::Prefix),
        ] {
            assert_eq!(Place::parse(url), Err(expected), "{url}");
        }
    }

    #[test]
    fn an_endpoint_is_a_host_and_nothing_else() {
        let place = Place::parse("s3://receipts").unwrap();
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
