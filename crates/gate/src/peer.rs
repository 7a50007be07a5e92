//! Remote end of a connection, as far as the transport identifies it.

use std::fmt;
use std::net::SocketAddr;

/// Remote end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// A TCP peer.
    At(SocketAddr),
    /// A peer on the Unix socket in the data folder. Its file permissions also protect the ledger next
    /// to it.
    Owner,
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::At(address) => address.fmt(f),
            Self::Owner => f.write_str("owner"),
        }
    }
}
