//! Unix sockets in data folders: whoever can open the folder can knock at them, and nobody else.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::Path;

use tokio::net::UnixListener;

/// Listens at `path`, in the place of a socket that nobody listens on any more.
pub(crate) fn listen(path: &Path) -> io::Result<UnixListener> {
    if fs::symlink_metadata(path).is_ok_and(|found| found.file_type().is_socket()) {
        match UnixStream::connect(path) {
            Ok(_) => return Err(io::Error::other("another process listens there")),
            Err(_) => fs::remove_file(path)?,
        }
    }
    let listener = UnixListener::bind(path)?;
    fs::set_permissions(path, Permissions::from_mode(0o600))?;
    Ok(listener)
}

/// Removes the socket of a listener that has ended.
pub(crate) fn remove(path: &Path) {
    if let Err(error) = fs::remove_file(path) {
        tracing::debug!(%error, "the socket was not removed");
    }
}
