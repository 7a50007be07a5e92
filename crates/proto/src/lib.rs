//! The gRPC wire of the skyra door: messages, client and server, generated from
//! `proto/admit/v1/ingress.proto`.

/// `admit.v1`
#[expect(
    missing_docs,
    clippy::allow_attributes,
    clippy::allow_attributes_without_reason,
    clippy::too_many_lines,
    reason = "generated code, documented where it is written by hand"
)]
pub mod v1 {
    tonic::include_proto!("admit.v1");
}

/// The description of the wire that server reflection hands out.
pub const FILE_DESCRIPTOR_SET: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ingress.bin"));
