//! Topics: checked when the bus is opened or when they are first published to, and created if
//! configured.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, ResourceSpecifier, TopicReplication};
use rdkafka::client::DefaultClientContext;
use tokio::task::spawn_blocking;

use super::Options;
use super::query::{QueryClient, TopicLayout};

/// Creates the topic if it does not exist and `create_topics` is set, and checks its settings.
pub(super) async fn prepare(
    client: &Arc<QueryClient>,
    options: &Options,
    topic: &str,
) -> Result<(), String> {
    let name = options.topic_of(topic);
    let layout = match layout(client, &name).await? {
        Some(layout) => layout,
        None if options.create_topics => {
            create(options, &name).await?;
            layout(client, &name)
                .await?
                .ok_or(format!("topic {name} was created and does not exist"))?
        }
        None => {
            return Err(format!(
                "topic {name} does not exist; create it, or set bus.kafka.create_topics"
            ));
        }
    };
    if layout.replicas < 2 {
        let replicas = layout.replicas;
        tracing::warn!(
            topic = name,
            replicas,
            "this topic has one replica, and kafka does not sync before it acknowledges: acknowledged messages are lost with that broker"
        );
    }
    if client.has_no_settings.load(Relaxed) {
        return Ok(());
    }
    match settings(options, &name).await {
        Ok(settings) => settings.check(&name),
        Err(reason) => {
            // Skip the request for other topics: it would time out again for each.
            client.has_no_settings.store(true, Relaxed);
            tracing::warn!(
                topic = name,
                reason,
                "failed to read topic settings from kafka; cleanup.policy must be delete and min.insync.replicas should be 2"
            );
            Ok(())
        }
    }
}

async fn layout(client: &Arc<QueryClient>, name: &str) -> Result<Option<TopicLayout>, String> {
    let (client, name) = (Arc::clone(client), name.to_owned());
    let request = spawn_blocking(move || client.layout(&name)).await;
    request.unwrap_or_else(|_| Err("the request was interrupted".to_owned()))
}

fn admin(options: &Options) -> Result<(AdminClient<DefaultClientContext>, AdminOptions), String> {
    let admin = options.client().remove("allow.auto.create.topics").create();
    let admin = admin.map_err(|error: rdkafka::error::KafkaError| error.to_string())?;
    let wait = options.request_timeout;
    let admin_options =
        AdminOptions::new().request_timeout(Some(wait)).operation_timeout(Some(wait));
    Ok((admin, admin_options))
}

async fn create(options: &Options, name: &str) -> Result<(), String> {
    let number = |number: u32| i32::try_from(number).unwrap_or(i32::MAX);
    let replication = TopicReplication::Fixed(number(options.replication));
    let topic = NewTopic::new(name, number(options.partitions), replication);
    let (admin, admin_options) = admin(options)?;
    let created = admin.create_topics([&topic], &admin_options).await;
    let created = created.map_err(|error| format!("failed to create topic {name}: {error}"))?;
    for topic_result in created {
        topic_result.map_err(|(_, error)| format!("failed to create topic {name}: {error}"))?;
    }
    tracing::info!(topic = name, partitions = options.partitions, "created a topic");
    Ok(())
}

/// Topic settings that matter here.
#[derive(Debug, Default)]
struct Settings {
    cleanup: String,
    in_sync_min: String,
}

impl Settings {
    fn check(&self, name: &str) -> Result<(), String> {
        if self.cleanup.split(',').any(|policy| policy == "compact") {
            return Err(format!(
                "topic {name} is compacted and keeps only the last message of a key; its cleanup.policy must be \
                 delete"
            ));
        }
        if self.in_sync_min == "1" {
            tracing::warn!(
                topic = name,
                "min.insync.replicas is 1: a message is acknowledged when one broker has it; raise it to 2"
            );
        }
        Ok(())
    }
}

async fn settings(options: &Options, name: &str) -> Result<Settings, String> {
    let (admin, admin_options) = admin(options)?;
    let described = admin.describe_configs([&ResourceSpecifier::Topic(name)], &admin_options).await;
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
    fn compacted_topics_are_refused() {
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
