//! Documents that do not change while a gate runs: rendered once and sent with an `ETag`.
//!
//! They need no key, so a response must cost no more than sending its bytes.

use admit_core::hash::sha256_hex;
use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::response::forbid_embedding;

/// Hex digits of the digest in the `ETag`.
const TAG_DIGITS: usize = 32;

/// A document with its `ETag`.
#[derive(Debug)]
pub(crate) struct FixedDocument {
    body: Bytes,
    tag: HeaderValue,
}

impl FixedDocument {
    /// Creates a JSON document.
    pub(super) fn json(body: Vec<u8>) -> Self {
        let digest = sha256_hex(&body);
        let tag = format!("\"{}\"", digest.get(..TAG_DIGITS).unwrap_or(&digest));
        let tag = HeaderValue::try_from(tag).expect("hex digits are a header value");
        Self { body: body.into(), tag }
    }

    /// Returns the document, or 304 if `If-None-Match` lists its tag.
    pub(super) fn to_response(&self, headers: &HeaderMap) -> Response {
        let is_known = headers
            .get_all(header::IF_NONE_MATCH)
            .iter()
            .any(|tags| is_listed(self.tag.as_bytes(), tags.as_bytes()));
        let mut response = match is_known {
            true => Response::new(Body::empty()),
            false => Response::new(Body::from(self.body.clone())),
        };
        if is_known {
            *response.status_mut() = StatusCode::NOT_MODIFIED;
        } else {
            let json = HeaderValue::from_static("application/json");
            response.headers_mut().insert(header::CONTENT_TYPE, json);
        }
        response.headers_mut().insert(header::ETAG, self.tag.clone());
        // Caches must revalidate: after a restart the doors may differ.
        let no_cache = HeaderValue::from_static("no-cache");
        response.headers_mut().insert(header::CACHE_CONTROL, no_cache);
        forbid_embedding(response.headers_mut());
        response
    }
}

/// Whether `tag` is in a list of tags, by weak comparison as in `If-None-Match`.
fn is_listed(tag: &[u8], tags: &[u8]) -> bool {
    tags.split(|byte| *byte == b',').map(<[u8]>::trim_ascii).any(|listed| {
        let listed = listed.strip_prefix(b"W/").unwrap_or(listed);
        listed == b"*" || listed == tag
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(document: &FixedDocument, tags: &[&str]) -> u16 {
        let mut headers = HeaderMap::new();
        for tags in tags {
            headers.append(header::IF_NONE_MATCH, HeaderValue::from_str(tags).unwrap());
        }
        document.to_response(&headers).status().as_u16()
    }

    #[test]
    fn a_client_with_the_current_document_gets_304() {
        let document = FixedDocument::json(b"{}".to_vec());
        let tag = document.tag.to_str().unwrap().to_owned();
        assert_eq!(tag.len(), TAG_DIGITS + 2);
        for known in [&*tag, &format!("W/{tag}"), &format!("\"a\", {tag}"), "*"] {
            assert_eq!(status(&document, &[known]), 304, "{known}");
        }
        assert_eq!(status(&document, &["\"a\"", &tag]), 304);
        for other in ["", "\"a\"", tag.trim_matches('"'), "W/\"a\", \"b\""] {
            assert_eq!(status(&document, &[other]), 200, "{other}");
        }
        assert_eq!(status(&document, &[]), 200);
        let other = FixedDocument::json(b"[]".to_vec());
        assert_ne!(other.tag, document.tag);
    }
}
