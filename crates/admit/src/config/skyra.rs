//! `[doors.skyra]`: where edge devices send their envelopes.

use std::time::Duration;

use admit_contracts::skyra::{Settings, Skyra};
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
    /// Longest wait for an answer, in milliseconds, where that is more than `limits.answer_ms_max`.
    pub(crate) answer_ms_max: u64,
}

impl Default for SkyraConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            path: "/v1/ingress".to_owned(),
            api_key_header: "X-API-Key".to_owned(),
            answer_ms_max: 8_000,
        }
    }
}

impl SkyraConfig {
    /// The contract; `owned_ids` where principals are configured.
    pub(crate) fn contract(&self, json_depth_max: usize, owned_ids: bool) -> Skyra {
        let answer_max = Duration::from_millis(self.answer_ms_max);
        Skyra::new(Settings { json_depth_max, owned_ids, answer_max })
    }
}
