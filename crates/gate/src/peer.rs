//! Who is at the other end of a connection, as far as the connection itself tells.

use std::fmt;
use std::net::SocketAddr;

/// The other end of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Peer {
    /// Somebody at an address.
    At(SocketAddr),
    /// Whoever may open the socket in the data folder, and with it the ledger beside it.
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
