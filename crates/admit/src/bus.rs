//! Opens the bus of a config: `bus.url` selects the kind, its sub-table has the settings.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use admit_bus::Bus;
use admit_bus::file::{self, FileBus, FileReader};
#[cfg(feature = "kafka")]
use admit_bus::kafka::KafkaBus;
#[cfg(feature = "nats")]
use admit_bus::nats::NatsBus;

use crate::config::{Config, Scheme};
use crate::output::{Failure, with_cause};

/// Read-only access to a bus.
pub(crate) enum BusReader {
    /// A file bus, which a gate may have open for writing.
    File(FileReader),
    /// A network bus.
    Network(Arc<dyn Bus>),
}

/// Opens the bus for publishing. `topics` are created or checked first. Opening a file bus runs crash
/// recovery, and compares the length of its logs with `acknowledged`, the ledger's number of
/// acknowledged messages per topic.
pub(crate) async fn open(
    config: &Config,
    base: &Path,
    topics: &[String],
    acknowledged: BTreeMap<String, u64>,
) -> Result<Arc<dyn Bus>, Failure> {
    let delivery_timeout = Duration::from_millis(config.bus.delivery_timeout_ms);
    match config.bus.scheme().map_err(Failure::usage)? {
        Scheme::File => {
            let options = file::Options {
                message_bytes_max: config.limits.body_bytes_max.min(file::MESSAGE_BYTES_CEILING),
                delivery_timeout,
                acknowledged,
                ..file::Options::new(config.bus_root().map_err(Failure::usage)?)
            };
            Ok(Arc::new(FileBus::open(options).map_err(|error| with_cause(&error))?))
        }
        #[cfg(feature = "nats")]
        Scheme::Nats => {
            let options = config.nats_options(base).map_err(Failure::usage)?;
            let opened = NatsBus::open(options, topics).await;
            Ok(Arc::new(opened.map_err(|error| with_cause(&error))?))
        }
        #[cfg(feature = "kafka")]
        Scheme::Kafka => {
            let options = config.kafka_options(base).map_err(Failure::usage)?;
            let opened = KafkaBus::open(options, topics).await;
            Ok(Arc::new(opened.map_err(|error| with_cause(&error))?))
        }
        #[cfg(feature = "kinesis")]
        Scheme::Kinesis => kinesis(config, topics).await,
    }
}

#[cfg(feature = "kinesis")]
async fn kinesis(config: &Config, topics: &[String]) -> Result<Arc<dyn Bus>, Failure> {
    use admit_bus::kinesis::{KinesisBus, Options};
    let (bus, millis) = (&config.bus.kinesis, Duration::from_millis);
    let options = Options {
        region: crate::config::kinesis_region(&config.bus.url).map_err(Failure::usage)?,
        endpoint: Some(bus.endpoint.clone()).filter(|endpoint| !endpoint.is_empty()),
        stream_prefix: bus.stream_prefix.clone(),
        streams: bus.streams.clone(),
        create_streams: bus.create_streams,
        shards: bus.shards,
        in_flight_max: bus.in_flight_max,
        requests_max: bus.requests_max,
        request_timeout: millis(bus.request_timeout_ms),
        delivery_timeout: millis(config.bus.delivery_timeout_ms),
        clock_slack: millis(bus.clock_slack_ms),
        query_timeout: millis(bus.find_wait_ms),
        find_records_max: bus.find_messages_max,
        ..Options::new(Arc::new(admit_gate::SystemClock))
    };
    if config.limits.body_bytes_max + admit_bus::name::PARTITION_KEY_BYTES_MAX
        > options.message_bytes_max
    {
        tracing::warn!(
            bytes_max = options.message_bytes_max,
            "limits.body_bytes_max is above the record size limit of kinesis (key included); lower it, so \
             that larger events are refused at the door"
        );
    }
    let opened = KinesisBus::open(options, topics).await;
    Ok(Arc::new(opened.map_err(|error| with_cause(&error))?))
}

/// Opens the bus read-only.
pub(crate) async fn open_read_only(config: &Config, base: &Path) -> Result<BusReader, Failure> {
    if config.bus.scheme().map_err(Failure::usage)? == Scheme::File {
        let root = config.bus_root().map_err(Failure::usage)?;
        return Ok(BusReader::File(FileReader::new(&root)));
    }
    open(config, base, &[], BTreeMap::new()).await.map(BusReader::Network)
}

/// All topics that the gate and the runner of this config publish to.
pub(crate) fn topics(config: &Config, base: &Path) -> Result<Vec<String>, Failure> {
    let ingestion = &config.doors.ingestion_gate;
    let mut topics = match ingestion.enabled {
        true => run_topics(config, ingestion.topics(base).map_err(Failure::usage)?),
        false => Vec::new(),
    };
    let rounds = &config.doors.rounds;
    if rounds.publishes() && !topics.contains(&rounds.topic) {
        topics.push(rounds.topic.clone());
    }
    Ok(topics)
}

/// The topics of runs: those of their events, and that of READY messages if the runner is enabled.
pub(crate) fn run_topics(config: &Config, of_events: Vec<String>) -> Vec<String> {
    let mut topics = of_events;
    let control = &config.stream.control_topic;
    if config.runner.enabled && !topics.contains(control) {
        topics.push(control.clone());
    }
    topics
}
