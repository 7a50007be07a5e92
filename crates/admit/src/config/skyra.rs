//! `[doors.skyra]`: where edge devices send their envelopes.

use serde::{Deserialize, Serialize};

/// `[doors.skyra]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SkyraConfig {
    /// Whether the door is there, and with it the inbox and gRPC.
    pub(crate) enabled: bool,
    /// Where a WebSocket is opened and single envelopes are posted.
    pub(crate) path: String,
    /// The header that may carry a key; `Authorization: Bearer` always works too.
    pub(crate) api_key_header: String,
}

impl Default for SkyraConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/v1/ingress".to_owned(),
            api_key_header: "X-API-Key".to_owned(),
        }
    }
}
