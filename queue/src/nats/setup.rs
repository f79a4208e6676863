//! Makes what has to be on the server, and finds out whether it is.

use serde::Deserialize;
use serde_json::{Value, json};

use super::NatsError;
use super::layout::Bucket;
use super::link::{Failure, Link};

/// Below this the server has too little room to be of use.
const SMALLEST_STREAM: i64 = 64 << 20;

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
}

#[derive(Debug, Deserialize)]
struct ConsumerInfo {
    config: ConsumerConfig,
}

/// What matters of a consumer's settings.
#[derive(Debug, Clone, Deserialize)]
pub(super) struct ConsumerConfig {
    /// The term of a lease, nanoseconds.
    #[serde(default)]
    pub(super) ack_wait: u64,
    #[serde(default)]
    filter_subject: String,
}

impl Link {
    /// Every stream there has to be, the buckets' ones included, by name.
    fn streams(&self) -> Vec<(String, Value)> {
        let layout = &self.layout;
        let work_queue = |subjects: String, max_bytes: i64, max_messages: i64| {
            json!({
                "subjects": [subjects], "retention": "workqueue", "storage": "file", "discard": "new",
                "max_bytes": max_bytes, "max_msgs": max_messages, "max_age": 0, "max_consumers": -1,
                "num_replicas": layout.replicas.max(1),
            })
        };
        let mut streams = vec![
            (layout.work_stream(), work_queue(layout.work_subjects(), layout.work_max_bytes, -1)),
            (
                layout.results_stream(),
                work_queue(layout.results_subjects(), layout.results_max_bytes, layout.results_max_messages),
            ),
        ];
        for bucket in Bucket::ALL {
            let name = layout.bucket(bucket);
            let max_age = u64::try_from(layout.max_age(bucket).as_nanos()).unwrap_or(0);
            // The server refuses a window for duplicates that is longer than the messages live.
            let window = if max_age == 0 { 120_000_000_000 } else { max_age.min(120_000_000_000) };
            let config = json!({
                "subjects": [format!("$KV.{name}.>")], "retention": "limits", "storage": "file", "discard": "new",
                "max_msgs_per_subject": 1, "max_bytes": -1, "max_msgs": -1, "max_consumers": -1, "max_age": max_age,
                "duplicate_window": window, "num_replicas": layout.replicas.max(1),
                "allow_rollup_hdrs": true, "deny_delete": true, "allow_direct": true,
            });
            streams.push((format!("KV_{name}"), config));
        }
        for name in [layout.payloads(), layout.shared()] {
            let config = json!({
                "subjects": [format!("$O.{name}.C.>"), format!("$O.{name}.M.>")], "retention": "limits",
                "storage": "file", "discard": "new", "max_bytes": -1, "max_msgs": -1, "max_consumers": -1, "max_age": 0,
                "num_replicas": layout.replicas.max(1), "allow_rollup_hdrs": true, "allow_direct": true,
            });
            streams.push((format!("OBJ_{name}"), config));
        }
        streams
    }

    /// Makes the streams that are missing.
    pub(super) async fn ensure(&self) -> Result<(), NatsError> {
        for (name, config) in self.streams() {
            match self.stream_config(&name).await {
                Ok(there) => fits(&name, &there, &config)?,
                Err(NatsError::Missing(_)) => self.create_stream(&name, config).await?,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Whether all streams are there.
    pub(super) async fn check(&self) -> Result<(), NatsError> {
        for (name, config) in self.streams() {
            let there = self.stream_config(&name).await.map_err(|error| match error {
                NatsError::Missing(_) => NatsError::Missing(format!(
                    "the NATS server has no stream `{name}`: no coordinator of protocol {} has set it up yet",
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
                // Somebody else made it just now, with other settings.
                Err(Failure::Api(error)) if error.err_code == 10_058 => {
                    return fits(name, &self.stream_config(name).await?, &config);
                }
                // A stream's limit is room set aside for it. On a server with less, a smaller stream does as well.
                Err(Failure::Api(error)) if matches!(error.err_code, 10_047 | 10_023) => {
                    let smaller = config["max_bytes"].as_i64().unwrap_or(-1) / 2;
                    if smaller < SMALLEST_STREAM {
                        return Err(NatsError::Unsuitable(format!(
                            "the NATS server has no room for stream `{name}` ({}): raise its max_file_store, or free some disk",
                            error.description
                        )));
                    }
                    tracing::warn!(
                        stream = name,
                        bytes = smaller,
                        "the NATS server has little room: making the stream smaller"
                    );
                    config["max_bytes"] = json!(smaller);
                }
                Err(failure) => return Err(failure.into()),
            }
        }
    }

    /// A consumer's settings; [`NatsError::Missing`] if it is not there.
    pub(super) async fn consumer(&self, stream: &str, name: &str) -> Result<ConsumerConfig, NatsError> {
        let info: ConsumerInfo = self.api(&format!("CONSUMER.INFO.{stream}.{name}"), &Value::Null).await?;
        Ok(info.config)
    }

    /// Makes a consumer, or finds the one that is there.
    pub(super) async fn ensure_consumer(
        &self,
        stream: &str,
        name: &str,
        filter: &str,
    ) -> Result<ConsumerConfig, NatsError> {
        let config = match self.consumer(stream, name).await {
            Ok(config) => config,
            Err(NatsError::Missing(_)) => {
                let lease = u64::try_from(self.layout.lease.as_nanos()).unwrap_or(u64::MAX);
                let question = json!({
                    "stream_name": stream,
                    "config": {
                        "name": name, "durable_name": name, "deliver_policy": "all", "ack_policy": "explicit",
                        "ack_wait": lease, "max_deliver": -1, "max_ack_pending": -1, "replay_policy": "instant",
                        // Every worker may have some requests waiting; the default of 512 refuses large fleets.
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
        if config.filter_subject != filter {
            return Err(NatsError::Refused(format!(
                "consumer `{name}` of stream `{stream}` takes `{}` and not `{filter}`: somebody else made it",
                config.filter_subject
            )));
        }
        Ok(config)
    }

    /// Deletes a consumer that may not be there.
    pub(super) async fn delete_consumer(&self, stream: &str, name: &str) -> Result<(), NatsError> {
        match self.api::<Value>(&format!("CONSUMER.DELETE.{stream}.{name}"), &Value::Null).await {
            Ok(_) => Ok(()),
            Err(Failure::Api(error)) if error.is_missing() => Ok(()),
            Err(failure) => Err(failure.into()),
        }
    }
}

/// A stream may have other limits than ours, and must be of the same kind.
fn fits(name: &str, there: &StreamConfig, wanted: &Value) -> Result<(), NatsError> {
    let same = |have: &str, key: &str| wanted[key].as_str().is_none_or(|want| want == have);
    let subjects = wanted["subjects"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let covered = subjects.clone().all(|subject| there.subjects.iter().any(|have| have == subject));
    if !same(&there.retention, "retention") || !same(&there.discard, "discard") || !covered {
        return Err(NatsError::Refused(format!(
            "stream `{name}` is there and of another kind: {} retention, discard {}, subjects {}; delete it or use another prefix",
            there.retention,
            there.discard,
            there.subjects.join(" ")
        )));
    }
    Ok(())
}
