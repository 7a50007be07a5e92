//! `[doors.skyra]`: the door of edge devices.

use std::time::Duration;

use admit_contracts::skyra::{Settings, Skyra};
use serde::{Deserialize, Serialize};

/// `[doors.skyra]`
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct SkyraConfig {
    /// Whether the door is open, with inbox and gRPC.
    pub(crate) enabled: bool,
    /// Path of the WebSocket and of single envelopes.
    pub(crate) path: String,
    /// Header for the API key; `Authorization: Bearer` is always accepted.
    pub(crate) api_key_header: String,
    /// Reply timeout, in milliseconds, if longer than `limits.answer_ms_max`.
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
    /// Builds the contract; `owned_ids` if principals are configured.
    pub(crate) fn contract(&self, json_depth_max: usize, owned_ids: bool) -> Skyra {
        let answer_max = Duration::from_millis(self.answer_ms_max);
        Skyra::new(Settings { json_depth_max, owned_ids, answer_max })
    }
}
