//! Topics: checked when the bus is opened or when they are first published to, and made where that
//! is wanted.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use tokio::task::spawn_blocking;

use super::Options;
use super::look::{Looker, Shape};

/// Makes the topic if it is not there and that is wanted, and checks that it keeps what it is given.
pub(super) async fn prepare(
    looker: &Arc<Looker>,
    options: &Options,
    topic: &str,
) -> Result<(), String> {
    let name = options.topic_of(topic);
    let shape = match shape(looker, &name).await? {
        Some(shape) => shape,
        None if options.create_topics => {
            make(options, &name).await?;
            shape(looker, &name)
                .await?
                .ok_or(format!("the topic {name} was made and is not there"))?
        }
        None => {
            return Err(format!(
                "the topic {name} is not there; make it, or set bus.kafka.create_topics"
            ));
        }
    };
    if shape.replicas < 2 {
        let replicas = shape.replicas;
        tracing::warn!(
            topic = name,
            replicas,
            "one broker keeps this topic, and kafka does not sync before it acknowledges: what it acknowledged is lost with that broker"
        );
    }
    if looker.is_silent.load(Relaxed) {
        return Ok(());
    }
    match settings(options, &name).await {
        Ok(settings) => settings.check(&name),
        Err(reason) => {
            // Asking again would take as long for every topic.
            looker.is_silent.store(true, Relaxed);
            tracing::warn!(
                topic = name,
                reason,
                "kafka does not tell the settings of its topics; cleanup.policy must be delete and min.insync.replicas should be 2"
            );
            Ok(())
        }
    }
}

async fn shape(looker: &Arc<Looker>, name: &str) -> Result<Option<Shape>, String> {
    let (looker, name) = (Arc::clone(looker), name.to_owned());
    let asked = spawn_blocking(move || looker.shape(&name)).await;
    asked.unwrap_or_else(|_| Err("the question was cut short".to_owned()))
}

fn admin(options: &Options) -> Result<(AdminClient<DefaultClientContext>, AdminOptions), String> {
    let admin = options.client().remove("allow.auto.create.topics").create();
    let admin = admin.map_err(|error: rdkafka::error::KafkaError| error.to_string())?;
    let wait = options.request_timeout;
    let how = AdminOptions::new().request_timeout(Some(wait)).operation_timeout(Some(wait));
    Ok((admin, how))
}

async fn make(options: &Options, name: &str) -> Result<(), String> {
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let replication = TopicReplication::Fixed(number(options.replication));
    let topic = NewTopic::new(name, number(options.partitions), replication);
    let (admin, how) = admin(options)?;
    let made = admin.create_topics([&topic], &how).await;
    let made = made.map_err(|error| format!("the topic {name} cannot be made: {error}"))?;
    for one in made {
        one.map_err(|(_, error)| format!("the topic {name} cannot be made: {error}"))?;
    }
    tracing::info!(topic = name, partitions = options.partitions, "a topic was made");
    Ok(())
}

/// Settings of a topic that matter here.
#[derive(Debug, Default)]
struct Settings {
    cleanup: String,
    in_sync_min: String,
}

impl Settings {
    fn check(&self, name: &str) -> Result<(), String> {
        if self.cleanup.split(',').any(|policy| policy == "compact") {
            return Err(format!(
                "the topic {name} keeps only the last message of a key; its cleanup.policy must be \
                 delete"
            ));
        }
        if self.in_sync_min == "1" {
            tracing::warn!(
                topic = name,
                "min.insync.replicas is 1: a message counts as acknowledged when one broker has it; raise it to 2"
            );
        }
        Ok(())
    }
}

async fn settings(options: &Options, name: &str) -> Result<Settings, String> {
    let (admin, how) = admin(options)?;
    let described = admin.describe_configs([&ResourceSpecifier::Topic(name)], &how).await;
    let described = described.map_err(|error| error.to_string())?;
    let mut settings = Settings::default();
    for resource in described {
        let resource = resource.map_err(|error| error.to_string())?;
        let value = |key: &str| resource.get(key).and_then(|entry| entry.value.clone());
        settings.cleanup = value("cleanup.policy").unwrap_or_default();
        settings.in_sync_min = value("min.insync.replicas").unwrap_or_default();
    }
    Ok(settings)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_topic_that_lets_go_of_all_but_the_last_message_is_refused() {
        let settings =
            |cleanup: &str| Settings { cleanup: cleanup.to_owned(), ..Settings::default() };
        for good in ["delete", ""] {
            assert_eq!(settings(good).check("t"), Ok(()));
        }
        for bad in ["compact", "compact,delete", "delete,compact"] {
            assert!(settings(bad).check("t").is_err(), "{bad}");
        }
    }
}
