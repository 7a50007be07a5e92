//! Unix sockets in data folders, with mode 0600: only the owner can connect.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// File of a socket that this process listens on.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode. Another process may have replaced the file since.
    identity: (u64, u64),
}

/// Listens at `path`, and replaces a stale socket file.
pub(crate) fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::other("a file that is not a socket exists at this path"));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(io::Error::other("another process is listening on this socket"));
        }
        Ok(_) | Err(_) => {}
    }
    // Renamed to its final path only after its mode is set.
    let new = path.with_extension("sock-new");
    match fs::symlink_metadata(&new) {
        Ok(left) if left.file_type().is_socket() => fs::remove_file(&new)?,
        Ok(_) | Err(_) => {}
    }
    let listener = UnixListener::bind(&new)?;
    fs::set_permissions(&new, Permissions::from_mode(0o600))?;
    let identity = identity(&fs::symlink_metadata(&new)?);
    fs::rename(&new, path)?;
    Ok((listener, SocketFile { path: path.to_owned(), identity }))
}

impl SocketFile {
    /// Removes the file, unless another process has replaced it.
    pub(crate) fn remove(&self) {
        let found = fs::symlink_metadata(&self.path);
        let removed = match found {
            Ok(found) if identity(&found) == self.identity => fs::remove_file(&self.path),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, "failed to remove the socket file");
        }
    }
}

fn identity(file: &Metadata) -> (u64, u64) {
    (file.dev(), file.ino())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn only_the_listening_process_removes_a_socket() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let (listener, first) = listen(&path).unwrap();
        assert!(listen(&path).is_err(), "a process is listening");
        drop(listener);
        let (_listener, second) = listen(&path).unwrap();
        first.remove();
        assert!(path.exists(), "the file belongs to the second listener");
        second.remove();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn a_file_that_is_not_a_socket_is_not_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        fs::write(&path, "precious").unwrap();
        assert!(listen(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
