//! Where packs are: which folder a place in a READY message or a run request stands for.

use std::path::PathBuf;
use std::sync::Arc;

use admit_runs::streamer::OpenPack;
use admit_runs::streamer::pack::store::{Disk, PackStore};

/// Opens packs on this machine's disks; relative places start at `root`.
pub(crate) fn opener(root: PathBuf) -> Arc<OpenPack> {
    Arc::new(move |place: &str| {
        let place = place.strip_prefix("file://").unwrap_or(place);
        if let Some((scheme, _)) = place.split_once("://") {
            return Err(format!("{scheme}:// is not supported by this build; name a folder"));
        }
        Ok(Arc::new(Disk::new(root.join(place))) as Arc<dyn PackStore>)
    })
}
