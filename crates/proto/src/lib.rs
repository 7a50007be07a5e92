//! gRPC API of the skyra door: messages, client and server, generated from
//! `proto/admit/v1/ingress.proto`.
//!
//! The generated code is committed, because the generators take longer to compile than all of it. A
//! test compares it with the `.proto` file and regenerates it if they differ.

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

/// Descriptor set for server reflection.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/ingress.bin");
