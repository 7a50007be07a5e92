//! `[bus.kinesis]`: how Amazon Kinesis is spoken to.

use serde::{Deserialize, Serialize};

/// `[bus.kinesis]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub(crate) struct KinesisConfig {}
