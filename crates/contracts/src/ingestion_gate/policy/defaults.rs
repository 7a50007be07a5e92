//! Shipped policy, as files that an operator can copy and edit.

use super::{PolicyFile, PolicyFiles};

macro_rules! shipped {
    ($path:literal) => {
        PolicyFile::new(concat!("builtin/", $path), include_str!(concat!("defaults/", $path)))
    };
}

macro_rules! schema {
    ($path:literal) => {
        PolicyFile::new($path, include_str!(concat!("defaults/", $path)))
    };
}

/// Shipped policy files. Their paths are part of the digest, so they never change.
pub fn shipped_files() -> PolicyFiles {
    PolicyFiles {
        class_map: shipped!("class_map_v0.yaml"),
        schema_policy: shipped!("schema_policy_v0.yaml"),
        partitioning: shipped!("partitioning_profiles_v0.yaml"),
        schemas: vec![
            schema!("schemas/engine_rows_v0.json"),
            schema!("schemas/open_payloads_v0.json"),
        ],
    }
}
