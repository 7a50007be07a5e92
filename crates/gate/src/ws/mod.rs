//! Events over a WebSocket (RFC 6455): each envelope and each reply is a text frame.
//!
//! `handshake` is the opening handshake, `frames` reads and writes frames, `session` serves one
//! connection. Frames are parsed here rather than by a library, because a library closes the connection
//! on a frame that is too large or not UTF-8; here such a frame gets a refusal and the session continues.

mod frames;
mod handshake;
mod session;

pub(crate) use handshake::accept;
pub(crate) use session::{SocketContext, run};
