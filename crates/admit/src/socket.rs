//! Unix sockets in data folders: whoever owns the folder can knock at them, and nobody else.

use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use tokio::net::UnixListener;

/// The file of a socket that this process listens on.
#[derive(Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    /// Device and inode: by now somebody else's socket may be in its place.
    identity: (u64, u64),
}

/// Listens at `path`, in the place of a socket that nobody listens on any more.
pub(crate) fn listen(path: &Path) -> io::Result<(UnixListener, SocketFile)> {
    match fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => {
            return Err(io::Error::other("something else has this name"));
        }
        Ok(_) if UnixStream::connect(path).is_ok() => {
            return Err(io::Error::other("another process listens there"));
        }
        Ok(_) | Err(_) => {}
    }
    // It gets its name when it is nobody else's to open.
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
    /// Removes the file, unless another process has put its own there.
    pub(crate) fn remove(&self) {
        let found = fs::symlink_metadata(&self.path);
        let removed = match found {
            Ok(found) if identity(&found) == self.identity => fs::remove_file(&self.path),
            Ok(_) => Ok(()),
            Err(error) => Err(error),
        };
        if let Err(error) = removed {
            tracing::debug!(%error, "the socket was not removed");
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
    async fn a_socket_is_removed_by_whoever_listens_on_it_and_by_nobody_else() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        let (listener, first) = listen(&path).unwrap();
        assert!(listen(&path).is_err(), "somebody listens there");
        drop(listener);
        let (_listener, second) = listen(&path).unwrap();
        first.remove();
        assert!(path.exists(), "it is the second one's");
        second.remove();
        assert!(!path.exists());
    }

    #[tokio::test]
    async fn what_is_no_socket_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a.sock");
        fs::write(&path, "precious").unwrap();
        assert!(listen(&path).is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}
