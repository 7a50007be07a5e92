//! Opens packs: resolves the location in a READY message or run request to a folder or bucket.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use admit_runs::streamer::OpenPack;
use admit_runs::streamer::pack::store::{Disk, PackStore};

use crate::config::Config;

/// Opener of packs in local folders and buckets; relative locations start at `root`.
pub(crate) fn opener(config: &Config, root: PathBuf) -> Arc<OpenPack> {
    #[cfg(feature = "s3")]
    let access = config.s3_access();
    #[cfg(not(feature = "s3"))]
    let _ = config;
    Arc::new(move |place: &str| {
        let place = resolve(&root, place);
        #[cfg(feature = "s3")]
        if place.starts_with("s3://") {
            return bucket(&place, &access);
        }
        if let Some((scheme, _)) = place.split_once("://") {
            return Err(format!("{scheme}:// is not supported by this build; name a folder"));
        }
        Ok(Arc::new(Disk::new(place)) as Arc<dyn PackStore>)
    })
}

/// Resolves a location against `root`, if it is relative.
fn resolve(root: &Path, place: &str) -> String {
    let place = place.strip_prefix("file://").unwrap_or(place);
    if place.contains("://") {
        return place.to_owned();
    }
    root.join(place).to_string_lossy().into_owned()
}

#[cfg(feature = "s3")]
fn bucket(place: &str, access: &admit_artifacts::s3::Access) -> Result<Arc<dyn PackStore>, String> {
    use admit_runs::streamer::pack::s3::Bucket;
    let place = admit_artifacts::s3::S3Location::parse(place).map_err(|error| error.to_string())?;
    let bucket = Bucket::open(place, access).map_err(|error| error.to_string())?;
    Ok(Arc::new(bucket))
}

/// Opener of packs below `root` only, after symlinks are resolved. An empty `root` allows any location.
pub(crate) fn opener_below(config: &Config, root: PathBuf) -> Arc<OpenPack> {
    // The runner has already resolved relative locations.
    let open = opener(config, PathBuf::new());
    if root.as_os_str().is_empty() {
        return open;
    }
    Arc::new(move |place: &str| match is_below(&root, place)? {
        true => open(place),
        false => Err(format!("{place} is not below {} (runner.packs)", root.display())),
    })
}

fn is_below(root: &Path, place: &str) -> Result<bool, String> {
    let text = root.to_string_lossy();
    if text.starts_with("s3://") || place.starts_with("s3://") {
        return Ok(is_below_in_bucket(&text, place));
    }
    let cannot = |path: &Path| {
        let path = path.display().to_string();
        move |error: std::io::Error| format!("{path}: {error}")
    };
    let root = root.canonicalize().map_err(cannot(root))?;
    let named = Path::new(place.strip_prefix("file://").unwrap_or(place));
    let resolved = named.canonicalize().map_err(cannot(named))?;
    Ok(resolved.starts_with(&root))
}

#[cfg(feature = "s3")]
fn is_below_in_bucket(root: &str, place: &str) -> bool {
    use admit_artifacts::s3::S3Location;
    let both = S3Location::parse(root).ok().zip(S3Location::parse(place).ok());
    both.is_some_and(|(root, place)| root.holds(&place))
}

#[cfg(not(feature = "s3"))]
fn is_below_in_bucket(_root: &str, _place: &str) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pack_outside_the_root_is_not_opened_through_a_link() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir_all(at("packs/mine")).unwrap();
        std::fs::create_dir(at("other")).unwrap();
        std::os::unix::fs::symlink(at("other"), at("packs/link")).unwrap();
        let config = Config::default();
        let open = opener_below(&config, at("packs"));
        assert!(open(at("packs/mine").to_str().unwrap()).is_ok());
        for elsewhere in ["other", "packs/link", "packs/../other", "packs/nothing"] {
            assert!(open(at(elsewhere).to_str().unwrap()).is_err(), "{elsewhere}");
        }
        assert!(open("s3://packs/mine").is_err());
        assert!(opener_below(&config, PathBuf::new())(at("other").to_str().unwrap()).is_ok());
    }

    #[test]
    fn a_pack_in_another_bucket_is_not_opened() {
        let root = Path::new("s3://packs/prod");
        assert_eq!(is_below(root, "s3://packs/prod/a"), Ok(cfg!(feature = "s3")));
        for elsewhere in
            ["s3://packs/production", "s3://other/prod/a", "s3://packs/prod/../dev", "/x"]
        {
            assert_eq!(is_below(root, elsewhere), Ok(false), "{elsewhere}");
        }
        assert_eq!(resolve(root, "run/a"), "s3://packs/prod/run/a");
        assert_eq!(resolve(root, "s3://other/a"), "s3://other/a");
        assert_eq!(resolve(root, "file:///srv/a"), "/srv/a");
    }
}
