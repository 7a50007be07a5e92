//! The gRPC wire of the skyra door: messages, client and server, generated from
//! `proto/admit/v1/ingress.proto`.
//!
//! What is generated is kept beside this file, because the generators take longer to compile than
//! all of it. A test holds it to the `.proto` file and writes it anew where they differ.

/// `admit.v1`
#[expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated code, documented where it is written by hand"
)]
pub mod v1 {
    include!("generated/admit.v1.rs");
}

/// The description of the wire that server reflection hands out.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/ingress.bin");
