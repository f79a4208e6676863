//! Creates the streams, buckets and consumers on the server, and checks whether they exist.

use serde::Deserialize;
use serde_json::{Value, json};

use super::NatsError;
use super::layout::{Bucket, ConsumerName, Stream};
use super::link::{Failure, Link};

/// Minimum size of a stream in bytes. A server with less space is unsuitable.
const SMALLEST_STREAM: i64 = 64 << 20;
/// Space reserved for the buckets in bytes, and the size for servers with less space.
const ROOM: [i64; 2] = [640 << 20, SMALLEST_STREAM];
/// JetStream's error code for a stream that exists with other settings.
const IN_USE: u32 = 10_058;

#[derive(Debug, Deserialize)]
struct StreamInfo {
    config: StreamConfig,
}

#[derive(Debug, Deserialize)]
struct StreamConfig {
    #[serde(default)]
    retention: String,
    #[serde(default)]
    discard: String,
    #[serde(default)]
    subjects: Vec<String>,
    #[serde(default)]
    max_bytes: i64,
}

#[derive(Debug, Deserialize)]
struct ConsumerInfo {
    config: ConsumerConfig,
    #[serde(flatten)]
    standing: ShardState,
}

/// State of a shard's consumer, as reported by the server.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct ShardState {
    /// Messages that were not delivered yet.
    #[serde(default, rename = "num_pending")]
    pub pending: usize,
    /// Messages that were delivered, and neither acknowledged nor returned.
    #[serde(default, rename = "num_ack_pending")]
    pub unacknowledged: usize,
    /// Pull requests that wait for messages.
    #[serde(default, rename = "num_waiting")]
    pub waiting: usize,
    /// Messages of the shard in the stream. All of them are pending or unacknowledged, unless the consumer has
    /// lost some, which are then never delivered.
    #[serde(skip)]
    pub messages: usize,
}

/// The required settings of a consumer.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ConsumerConfig {
    /// Duration of a lease, in nanoseconds.
    #[serde(default)]
    pub(super) ack_wait: u64,
    #[serde(default)]
    filter_subject: String,
}

impl Link {
    /// Returns all required streams with their settings, by name. The streams of the buckets come first: they
    /// reserve no space, and cannot be created on a server whose space is fully reserved.
    fn streams(&self) -> Vec<(String, Value)> {
        let layout = &self.layout;
        let mut streams = Vec::new();
        for bucket in Bucket::ALL {
            let name = layout.bucket(bucket);
            let max_age = u64::try_from(layout.max_age(bucket).as_nanos()).unwrap_or(0);
            // The server rejects a duplicate window that is longer than the maximum age.
            let window = if max_age == 0 { 120_000_000_000 } else { max_age.min(120_000_000_000) };
            let storage = if bucket.is_kept() { "file" } else { "memory" };
            let config = json!({
                "subjects": [format!("$KV.{name}.>")], "retention": "limits", "storage": storage, "discard": "new",
                "max_msgs_per_subject": 1, "max_bytes": -1, "max_msgs": -1, "max_consumers": -1, "max_age": max_age,
                "duplicate_window": window, "num_replicas": layout.replicas.max(1),
                "allow_rollup_hdrs": true, "deny_delete": true, "allow_direct": true,
            });
            streams.push((format!("KV_{name}"), config));
        }
        for name in ["payloads", "shared"].map(|what| layout.name(what)) {
            let config = json!({
                "subjects": [format!("$O.{name}.C.>"), format!("$O.{name}.M.>")], "retention": "limits",
                "storage": "file", "discard": "new", "max_bytes": -1, "max_msgs": -1, "max_consumers": -1, "max_age": 0,
                "num_replicas": layout.replicas.max(1), "allow_rollup_hdrs": true, "allow_direct": true,
            });
            streams.push((format!("OBJ_{name}"), config));
        }
        for (stream, max_bytes, max_messages) in [
            (Stream::Results, layout.results_max_bytes, layout.results_max_messages),
            (Stream::Work, layout.work_max_bytes, -1),
        ] {
            let config = json!({
                "subjects": [layout.subjects(stream)], "retention": "workqueue", "storage": "file", "discard": "new",
                "max_bytes": max_bytes, "max_msgs": max_messages, "max_age": 0, "max_consumers": -1,
                "num_replicas": layout.replicas.max(1),
            });
            streams.push((layout.stream(stream), config));
        }
        streams
    }

    /// Creates missing streams. Returns their names.
    pub(super) async fn ensure(&self) -> Result<Vec<String>, NatsError> {
        let mut made = Vec::new();
        for (name, config) in self.streams() {
            match self.stream_config(&name).await {
                Ok(there) => fits(&name, &there, &config)?,
                Err(NatsError::Missing(_)) => {
                    if config["max_bytes"].as_i64().is_some_and(|bytes| bytes > 0) {
                        self.keep_room().await;
                    }
                    self.create_stream(&name, config).await?;
                    made.push(name);
                }
                Err(error) => return Err(error),
            }
        }
        if !made.is_empty() {
            self.remade.send_modify(|count| *count += 1);
        }
        Ok(made)
    }

    /// Reserves space for the buckets with a stream that nothing is written to, before other streams reserve
    /// theirs. If it cannot be created (permissions of an earlier version, little space), the server works
    /// without it.
    async fn keep_room(&self) {
        let name = self.layout.room_stream();
        for bytes in ROOM {
            let config = json!({
                "name": name, "subjects": [self.layout.room_subject()], "retention": "limits", "storage": "file",
                "discard": "new", "max_bytes": bytes, "max_msgs": -1, "max_consumers": -1, "max_age": 0,
                "num_replicas": self.layout.replicas.max(1),
            });
            match self.api::<Value>(&format!("STREAM.CREATE.{name}"), &config).await {
                Err(Failure::Api(error)) if error.is_full() => {}
                // Created now or earlier. If it exists with another limit, the server returns an error,
                // ignored below.
                Ok(_) => return,
                Err(failure) => {
                    let error = NatsError::from(failure);
                    tracing::debug!(%error, stream = name, "failed to reserve space for the buckets");
                    return;
                }
            }
        }
    }

    /// Returns the sizes that the streams reserve in bytes, largest first.
    async fn reserved(&self) -> Vec<(String, i64)> {
        let layout = &self.layout;
        let mut reserved = Vec::new();
        for name in [layout.stream(Stream::Work), layout.stream(Stream::Results), layout.room_stream()] {
            let there = self.stream_config(&name).await.ok().filter(|config| config.max_bytes > 0);
            reserved.extend(there.map(|config| (name, config.max_bytes)));
        }
        reserved.sort_by_key(|(_, bytes)| std::cmp::Reverse(*bytes));
        reserved
    }

    /// Checks that all streams exist with suitable settings.
    pub(super) async fn check(&self) -> Result<(), NatsError> {
        for (name, config) in self.streams() {
            let there = self.stream_config(&name).await.map_err(|error| match error {
                NatsError::Missing(_) => NatsError::Missing(format!(
                    "stream `{name}` not found on the NATS server: no coordinator of protocol {} has created \
                     it yet",
                    self.layout.protocol
                )),
                error => error,
            })?;
            fits(&name, &there, &config)?;
        }
        Ok(())
    }

    async fn stream_config(&self, name: &str) -> Result<StreamConfig, NatsError> {
        let info: StreamInfo = self.api(&format!("STREAM.INFO.{name}"), &Value::Null).await?;
        Ok(info.config)
    }

    async fn create_stream(&self, name: &str, mut config: Value) -> Result<(), NatsError> {
        config["name"] = json!(name);
        loop {
            match self.api::<Value>(&format!("STREAM.CREATE.{name}"), &config).await {
                Ok(_) => return Ok(()),
                // Another process has just created it with other settings.
                Err(Failure::Api(error)) if error.err_code == IN_USE => {
                    return fits(name, &self.stream_config(name).await?, &config);
                }
                // A stream's limit is reserved on the server. On a server with less space, a smaller stream
                // is sufficient.
                Err(Failure::Api(error)) if matches!(error.err_code, 10_047 | 10_023) => {
                    let smaller = config["max_bytes"].as_i64().unwrap_or(-1) / 2;
                    if smaller < SMALLEST_STREAM {
                        return Err(self.no_room(name, &config, &error.description).await);
                    }
                    tracing::warn!(
                        stream = name,
                        bytes = smaller,
                        "the NATS server has little space; creating a smaller stream"
                    );
                    config["max_bytes"] = json!(smaller);
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// Returns the error for a server with too little space for a stream, with the required and the reserved
    /// space.
    async fn no_room(&self, name: &str, config: &Value, why: &str) -> NatsError {
        let needed = match config["max_bytes"].as_i64() {
            Some(bytes) if bytes > 0 => format!("at least {}", size(SMALLEST_STREAM)),
            _ => "some space that is not reserved by a stream".to_owned(),
        };
        let reserved = self.reserved().await;
        let listed: Vec<String> =
            reserved.iter().map(|(name, bytes)| format!("{name} {}", size(*bytes))).collect();
        let listed = if listed.is_empty() { "no space by lumos".to_owned() } else { listed.join(", ") };
        let less = reserved.first().map_or_else(String::new, |(largest, bytes)| {
            format!(
                ", or reserve less: nats stream edit {largest} --max-bytes {}",
                (bytes / 2).max(SMALLEST_STREAM)
            )
        });
        NatsError::Unsuitable(format!(
            "the NATS server has no space for stream `{name}` ({why}): required: {needed}, reserved: \
             {listed}; hint: raise max_file_store of the server{less}"
        ))
    }

    /// Returns a consumer's settings. Fails with [`NatsError::Missing`] if it does not exist.
    pub(super) async fn consumer(&self, consumer: &ConsumerName) -> Result<ConsumerConfig, NatsError> {
        Ok(self.consumer_info(consumer).await?.config)
    }

    async fn consumer_info(&self, consumer: &ConsumerName) -> Result<ConsumerInfo, NatsError> {
        let ConsumerName { stream, name, .. } = consumer;
        Ok(self.api(&format!("CONSUMER.INFO.{stream}.{name}"), &Value::Null).await?)
    }

    /// Creates a consumer unless it exists. Returns its settings.
    pub(super) async fn ensure_consumer(&self, consumer: &ConsumerName) -> Result<ConsumerConfig, NatsError> {
        let ConsumerName { stream, name, filter } = consumer;
        let config = match self.consumer(consumer).await {
            Ok(config) => config,
            Err(NatsError::Missing(_)) => {
                let lease = u64::try_from(self.layout.lease.as_nanos()).unwrap_or(u64::MAX);
                let question = json!({
                    "stream_name": stream,
                    "config": {
                        "name": name, "durable_name": name, "deliver_policy": "all", "ack_policy": "explicit",
                        "ack_wait": lease, "max_deliver": -1, "max_ack_pending": -1, "replay_policy": "instant",
                        // Every worker may have several waiting requests; the default of 512 is too small for
                        // large fleets.
                        "max_waiting": 16_384,
                        "filter_subject": filter,
                    },
                });
                let info: ConsumerInfo =
                    self.api(&format!("CONSUMER.CREATE.{stream}.{name}.{filter}"), &question).await?;
                info.config
            }
            Err(error) => return Err(error),
        };
        if config.filter_subject != *filter {
            return Err(NatsError::Refused(format!(
                "consumer `{name}` of stream `{stream}` has filter `{}` instead of `{filter}`: it was \
                 created by another program",
                config.filter_subject
            )));
        }
        Ok(config)
    }

    /// Returns the state of a consumer.
    pub(super) async fn standing(&self, consumer: &ConsumerName) -> Result<ShardState, NatsError> {
        let messages = self.subjects(&consumer.stream, &consumer.filter).await?.len();
        Ok(ShardState { messages, ..self.consumer_info(consumer).await?.standing })
    }

    /// Creates a consumer if it is missing. Returns whether it was missing.
    pub(super) async fn restore_consumer(&self, consumer: &ConsumerName) -> Result<bool, NatsError> {
        match self.consumer(consumer).await {
            Ok(_) => Ok(false),
            Err(NatsError::Missing(_)) => self.ensure_consumer(consumer).await.map(|_| true),
            Err(error) => Err(error),
        }
    }

    /// Recreates a consumer, so that all messages of its stream are redelivered.
    pub(super) async fn remake_consumer(&self, consumer: &ConsumerName) -> Result<ConsumerConfig, NatsError> {
        self.delete_consumer(consumer).await?;
        self.ensure_consumer(consumer).await
    }

    /// Deletes a consumer, if it exists.
    pub(super) async fn delete_consumer(&self, consumer: &ConsumerName) -> Result<(), NatsError> {
        let ConsumerName { stream, name, .. } = consumer;
        match self.api::<Value>(&format!("CONSUMER.DELETE.{stream}.{name}"), &Value::Null).await {
            Ok(_) => Ok(()),
            Err(Failure::Api(error)) if error.is_missing() => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }
}

/// Formats a size in bytes for messages.
fn size(bytes: i64) -> String {
    let mebibytes = bytes / (1 << 20);
    if mebibytes >= 1024 {
        format!("{:.1} GiB", mebibytes as f64 / 1024.0)
    } else {
        format!("{mebibytes} MiB")
    }
}

/// Checks that an existing stream is of the required kind. Its limits may differ.
fn fits(name: &str, there: &StreamConfig, wanted: &Value) -> Result<(), NatsError> {
    let same = |have: &str, key: &str| wanted[key].as_str().is_none_or(|want| want == have);
    let subjects = wanted["subjects"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let covered = subjects.clone().all(|subject| there.subjects.iter().any(|have| have == subject));
    if !same(&there.retention, "retention") || !same(&there.discard, "discard") || !covered {
        return Err(NatsError::Refused(format!(
            "stream `{name}` exists with other settings: {} retention, discard {}, subjects {}; hint: use \
             another server or account",
            there.retention,
            there.discard,
            there.subjects.join(" ")
        )));
    }
    Ok(())
}
