//! Events over a WebSocket (RFC 6455): one envelope in a text frame, one answer in a text frame.
//!
//! `handshake` agrees on it, `frames` reads and writes frames, `session` carries one connection.
//! Frames are taken apart here and not by a library, because a library ends the connection over a
//! frame that is too large or not UTF-8; here such a frame is answered and its neighbours go on.

mod frames;
mod handshake;
mod session;

pub(crate) use handshake::accept;
pub(crate) use session::{Session, run};
