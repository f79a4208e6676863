//! A connection to NATS, and operations on the server as a whole.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_nats::HeaderMap;
use bytes::Bytes;
use futures::StreamExt;
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::codec::Complaints;
use super::connect::{self, Connected};
use super::layout::{Bucket, ConsumerName, Shard, Stream, check_run, is_message_id, is_token};
use super::lease::{ANSWERS, GIVE_BACK, Outgoing, send_answers};
use super::link::{Failure, Link, SharedLink};
use super::objects::Objects;
use super::publishing::Publisher;
use super::pulling::{Puller, Source};
use super::queue::Direction;
use super::setup::ConsumerConfig;
use super::{Access, Blobs, KeyValue, Layout, NatsError, NatsQueue, ShardState};

/// Delay before a server that did not respond is checked again.
const CHECK_RETRY: Duration = Duration::from_secs(1);

/// Time limit for a stream to store a probe message.
const PROBE: Duration = Duration::from_secs(4);

/// Maximum number of messages of a stream whose headers are checked in one call.
const EXAMINED: usize = 1000;

/// Minimum duration of a lease. With the duration that a server may report, holders would extend without a pause.
const SHORTEST_LEASE: Duration = Duration::from_millis(100);

/// Settings of a connection.
#[derive(Debug, Clone)]
pub struct Connecting {
    /// Name of the connection, shown in the server's monitoring.
    pub name: String,
    /// How long to retry; `None` retries forever.
    pub patience: Option<Duration>,
    /// Names and limits.
    pub layout: Layout,
}

/// State of the connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ConnectionState {
    /// Whether it is connected.
    pub connected: bool,
    /// Number of reconnections.
    pub reconnections: u64,
}

/// A connection to a NATS server or cluster. Cloning gives another handle to the same connection.
#[derive(Debug, Clone)]
pub struct Server {
    link: SharedLink,
}

impl Server {
    /// Connects, and checks that the server is 2.9 or later and has JetStream.
    ///
    /// # Errors
    /// If no server can be reached within the time limit, the credentials are rejected, or the server is unsuitable.
    pub async fn connect(access: &Access, connecting: Connecting) -> Result<Self, NatsError> {
        let deadline = connecting.patience.map(|patience| Instant::now() + patience);
        let Connected { client, connection, violations } = connect::connect(access, &connecting).await?;
        let (answers, waiting) = mpsc::channel(ANSWERS);
        let tasks = TaskTracker::new();
        tasks.spawn(send_answers(client.clone(), waiting));
        let version = client.server_info().version;
        let link = Arc::new(Link {
            client,
            layout: connecting.layout,
            version,
            connection,
            violations,
            answers,
            complaints: Complaints::default(),
            remade: watch::Sender::new(0),
            ended: CancellationToken::new(),
            tasks,
        });
        loop {
            match connect::check(&link, access).await {
                Err(NatsError::Unreachable(why))
                    if deadline.is_none_or(|deadline| Instant::now() < deadline) =>
                {
                    tracing::warn!("{why}; retrying");
                    sleep(CHECK_RETRY).await;
                }
                checked => return checked.map(|()| Self { link }),
            }
        }
    }

    /// Returns the server's version.
    pub fn version(&self) -> &str {
        &self.link.version
    }

    /// Names and limits.
    pub fn layout(&self) -> &Layout {
        &self.link.layout
    }

    /// Returns whether the client is connected.
    pub fn is_connected(&self) -> bool {
        self.link.is_connected()
    }

    /// Returns a receiver of the connection's state, which changes with every disconnection and reconnection.
    pub fn connection(&self) -> watch::Receiver<ConnectionState> {
        self.link.connection.clone()
    }

    /// Creates missing streams and buckets. Existing ones keep their limits.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request, or a stream of that name has other settings.
    pub async fn ensure(&self) -> Result<(), NatsError> {
        self.link.ensure().await.map(|_| ())
    }

    /// Recreates streams, buckets and consumers (of these shards and of the run's results) that were deleted
    /// during a run. Returns the names of those that were missing. The content of a deleted stream or bucket
    /// is lost.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request. Objects created before the failure remain.
    pub async fn restore(&self, run: &str, shards: &[String]) -> Result<Vec<String>, NatsError> {
        check_run(run)?;
        let mut made = self.link.ensure().await?;
        let mut consumers = vec![self.link.layout.results_consumer(run)];
        for shard in shards {
            consumers.push(self.consumer_of(shard)?);
        }
        for consumer in consumers {
            if self.link.restore_consumer(&consumer).await? {
                made.push(format!("{}/{}", consumer.stream, consumer.name));
            }
        }
        Ok(made)
    }

    /// Replaces the consumer of a run's results, for use if it no longer delivers the content of its stream.
    /// Every result is redelivered. Queues from [`Server::results_consumer`] continue with the new consumer.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn remake_results(&self, run: &str) -> Result<(), NatsError> {
        check_run(run)?;
        self.link.remake_consumer(&self.link.layout.results_consumer(run)).await.map(|_| ())
    }

    /// Returns the state of a shard's consumer, over all runs.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn shard_standing(&self, shard: &str) -> Result<ShardState, NatsError> {
        self.link.standing(&self.consumer_of(shard)?).await
    }

    /// Replaces a shard's consumer, for use if it no longer delivers the content of its stream. Units are
    /// redelivered, including those that are leased.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn remake_shard(&self, shard: &str) -> Result<(), NatsError> {
        self.link.remake_consumer(&self.consumer_of(shard)?).await.map(|_| ())
    }

    /// Returns the streams of work and results that respond to requests but do not store messages, as happens
    /// after a full disk, until the server is restarted or the stream is [deleted](Server::give_up). Detected
    /// by storing a message that belongs to no run. A stream that rejects messages because it is full is not
    /// included.
    ///
    /// # Errors
    /// If the server rejects the request.
    pub async fn hung(&self) -> Result<Vec<String>, NatsError> {
        let layout = &self.link.layout;
        let mut hung = Vec::new();
        for stream in Stream::ALL {
            let subject = format!("{}.{}", layout.probe(stream), self.link.unique());
            let stored = self.link.store(&subject, HeaderMap::new(), Bytes::new(), false);
            match tokio::time::timeout(PROBE, stored).await {
                Ok(Ok(_)) => {
                    self.link.purge(&layout.stream(stream), &subject).await?;
                }
                Ok(Err(Failure::Refused(why))) => return Err(NatsError::Refused(why)),
                Ok(Err(_)) => {}
                Err(_) if self.link.is_connected() => hung.push(layout.stream(stream)),
                Err(_) => {}
            }
        }
        Ok(hung)
    }

    /// Deletes a stream of work or results that is [hung](Server::hung), with its content.
    /// [`Server::restore`] recreates it.
    ///
    /// # Errors
    /// If it is neither of these two, or the server cannot be reached or rejects the request.
    pub async fn give_up(&self, stream: &str) -> Result<(), NatsError> {
        if !self.link.layout.has_stream(stream) {
            return Err(NatsError::Refused(format!("stream `{stream}` is not a stream of work or results")));
        }
        self.link.api::<Value>(&format!("STREAM.DELETE.{stream}"), &Value::Null).await?;
        Ok(())
    }

    /// Writes a run's notice to the bucket of the previous protocol, if it exists, so that older workers report that
    /// they ignore the run.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn tell_older(&self, run: &str, notice: &[u8]) -> Result<(), NatsError> {
        check_run(run)?;
        let layout = &self.link.layout;
        let older = Layout { protocol: layout.protocol.saturating_sub(1), ..layout.clone() };
        let subject = format!("$KV.{}.{run}", older.bucket(Bucket::Runs));
        Ok(self.link.tell(&subject, Bytes::copy_from_slice(notice)).await?)
    }

    /// Checks that everything created by [`Server::ensure`] exists.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if something does not exist. Also if a stream has other settings, or the server
    /// cannot be reached.
    pub async fn check(&self) -> Result<(), NatsError> {
        self.link.check().await
    }

    /// Returns a message to its queue by its lease token, after its holder disappeared.
    ///
    /// # Errors
    /// If the token is invalid, or the server cannot be reached.
    pub async fn reassign(&self, token: &str) -> Result<(), NatsError> {
        if !self.link.layout.is_lease_token(token) {
            return Err(NatsError::Address(
                "invalid lease token: not a lease of the queues of this server".to_owned(),
            ));
        }
        Ok(self.link.tell(token, GIVE_BACK).await?)
    }

    /// Returns the publishing end of a shard (`<needs>.<priority>`) for one run. Creates the shard's consumer
    /// if it is missing.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn shard_publisher<T>(&self, shard: &str, run: &str) -> Result<NatsQueue<T>, NatsError> {
        check_run(run)?;
        self.link.ensure_consumer(&self.consumer_of(shard)?).await?;
        let root = self.link.layout.shard_root(&Shard::parse(shard)?, run);
        Ok(NatsQueue::new(Direction::Publish(Publisher::new(self.link.clone(), root, run.to_owned()))))
    }

    /// Returns the claiming end of a shard, for all runs. Does not create the shard's consumer.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if the shard does not exist.
    pub async fn shard_consumer<T>(&self, shard: &str) -> Result<NatsQueue<T>, NatsError> {
        let consumer = self.consumer_of(shard)?;
        let config = self.link.consumer(&consumer).await?;
        self.claiming(consumer, &config).await
    }

    /// Returns the publishing end of a run's results.
    ///
    /// # Errors
    /// If the run's token is invalid.
    pub async fn results_publisher<T>(&self, run: &str) -> Result<NatsQueue<T>, NatsError> {
        check_run(run)?;
        let root = self.link.layout.results_root(run);
        Ok(NatsQueue::new(Direction::Publish(Publisher::new(self.link.clone(), root, run.to_owned()))))
    }

    /// Returns the claiming end of a run's results. Recreates its consumer, so that results claimed by a
    /// killed process can be claimed immediately.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn results_consumer<T>(&self, run: &str) -> Result<NatsQueue<T>, NatsError> {
        check_run(run)?;
        let consumer = self.link.layout.results_consumer(run);
        let config = self.link.remake_consumer(&consumer).await?;
        self.claiming(consumer, &config).await
    }

    /// Returns the ids of a run's messages in the work stream, queued or leased, over all shards.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn work_present(&self, run: &str) -> Result<HashSet<String>, NatsError> {
        self.present(Stream::Work, run).await
    }

    /// Returns the shards (`<needs>.<priority>`) that contain messages of a run, queued or leased.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn shards_present(&self, run: &str) -> Result<HashSet<String>, NatsError> {
        let subjects = self.subjects(Stream::Work, run).await?;
        Ok(subjects.iter().filter_map(|subject| self.link.layout.shard_of(subject)).collect())
    }

    /// Returns the ids of a run's messages in the results stream.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn results_present(&self, run: &str) -> Result<HashSet<String>, NatsError> {
        self.present(Stream::Results, run).await
    }

    /// Removes a run's messages (work and results) whose headers cannot be parsed, for example because of a
    /// flipped bit. Returns their ids. A client that receives such a message loses its connection each time,
    /// and never receives the messages after it. Checks up to 1000 messages of each stream.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn remove_unreadable(&self, run: &str) -> Result<Vec<String>, NatsError> {
        check_run(run)?;
        let layout = &self.link.layout;
        let mut removed = Vec::new();
        for stream in Stream::ALL {
            let (stream, filter) = (layout.stream(stream), layout.run_subjects(stream, run));
            for subject in self.link.subjects(&stream, &filter).await?.into_iter().take(EXAMINED) {
                let question = json!({ "last_by_subj": subject });
                let Some(stored) = self.link.message(&stream, &question).await? else { continue };
                if super::codec::is_readable(&stored.headers) {
                    continue;
                }
                // Deletes by sequence number: after a subject is purged, consumers of nats-server 2.9 lose
                // the messages that follow.
                let which = json!({ "seq": stored.sequence, "no_erase": true });
                self.link.api::<Value>(&format!("STREAM.MSG.DELETE.{stream}"), &which).await?;
                removed.extend(subject.rsplit('.').next().map(str::to_owned));
            }
        }
        Ok(removed)
    }

    /// Removes a run's work messages; returns their number.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn purge_work(&self, run: &str) -> Result<u64, NatsError> {
        check_run(run)?;
        self.purge(Stream::Work, run).await
    }

    /// Removes all data of a run except its notice and its status: work, results, their consumer, payloads.
    ///
    /// # Errors
    /// If the server cannot be reached or rejects the request.
    pub async fn remove_run(&self, run: &str) -> Result<(), NatsError> {
        self.purge_work(run).await?;
        self.link.delete_consumer(&self.link.layout.results_consumer(run)).await?;
        self.purge(Stream::Results, run).await?;
        Ok(Objects::payloads(&self.link).remove_space(run).await?)
    }

    /// Returns the bucket of run notices: run token → notice of the run.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if the server has not been set up.
    pub async fn runs(&self) -> Result<KeyValue, NatsError> {
        self.bucket(Bucket::Runs).await
    }

    /// Returns the bucket of worker notices: worker name → notice of the worker. A notice expires if it is
    /// not written again.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if the server has not been set up.
    pub async fn workers(&self) -> Result<KeyValue, NatsError> {
        self.bucket(Bucket::Workers).await
    }

    /// Publishes a worker's latest claims to the subscribers of [`Server::claims`]. The message is not stored
    /// and has no response.
    ///
    /// # Errors
    /// If the name is invalid in a subject, or the server cannot be reached.
    pub async fn tell_claims(&self, worker: &str, payload: Vec<u8>) -> Result<(), NatsError> {
        if !is_token(worker) {
            return Err(NatsError::Address(format!(
                "invalid worker name `{worker}`: expected letters, digits, `-` and `_`"
            )));
        }
        Ok(self.link.tell(&self.link.layout.claims_of(worker), payload.into()).await?)
    }

    /// Subscribes to the claims of workers, each with the worker's name. Bodies are not validated.
    ///
    /// # Errors
    /// If the server cannot be reached.
    pub async fn claims(
        &self,
    ) -> Result<impl futures::Stream<Item = (String, Bytes)> + Send + use<>, NatsError> {
        let subscriber = self.link.client.subscribe(self.link.layout.claims()).await;
        let subscriber = subscriber.map_err(|error| NatsError::Refused(error.to_string()))?;
        Ok(subscriber.map(|message| {
            let worker = message.subject.rsplit('.').next().unwrap_or_default().to_owned();
            (worker, message.payload)
        }))
    }

    /// Returns the bucket of owners: run token → claim of the coordinator that owns the run. A claim expires
    /// if it is not written again.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if the server has not been set up.
    pub async fn owners(&self) -> Result<KeyValue, NatsError> {
        self.bucket(Bucket::Owners).await
    }

    /// Returns the bucket of statuses: run token → status of the run.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if the server has not been set up.
    pub async fn status(&self) -> Result<KeyValue, NatsError> {
        self.bucket(Bucket::Status).await
    }

    /// Returns the store of inputs that the units of runs share, by hash.
    ///
    /// # Errors
    /// [`NatsError::Missing`] if the server has not been set up.
    pub async fn shared(&self) -> Result<Blobs, NatsError> {
        self.there(&format!("OBJ_{}", self.link.layout.name("shared"))).await?;
        Ok(Blobs::new(&self.link))
    }

    /// Sends pending messages, returns prefetched messages and closes the connection.
    pub async fn close(&self) {
        self.link.ended.cancel();
        // Tasks return the messages that they hold; then pending replies are sent before the connection is
        // closed.
        let rest = async {
            while self.link.tasks.len() > 1 {
                sleep(Duration::from_millis(5)).await;
            }
            let (told, sent) = oneshot::channel();
            if self.link.answers.send(Outgoing::Sent(told)).await.is_ok() {
                let _ = sent.await;
            }
        };
        let _ = tokio::time::timeout(Duration::from_secs(2), rest).await;
        let _ = tokio::time::timeout(Duration::from_secs(1), self.link.client.drain()).await;
    }

    /// The consumer of a shard.
    fn consumer_of(&self, shard: &str) -> Result<ConsumerName, NatsError> {
        Ok(self.link.layout.shard_consumer(&Shard::parse(shard)?))
    }

    async fn claiming<T>(
        &self,
        consumer: ConsumerName,
        config: &ConsumerConfig,
    ) -> Result<NatsQueue<T>, NatsError> {
        let term = Duration::from_nanos(config.ack_wait).max(SHORTEST_LEASE);
        let puller = Puller::start(self.link.clone(), Source { consumer, term }).await?;
        Ok(NatsQueue::new(Direction::Claim(puller)))
    }

    /// Returns the ids of a run's messages in a stream: the last tokens of their subjects.
    async fn present(&self, stream: Stream, run: &str) -> Result<HashSet<String>, NatsError> {
        let subjects = self.subjects(stream, run).await?;
        let ids = subjects.into_iter().filter_map(|subject| subject.rsplit('.').next().map(str::to_owned));
        Ok(ids.filter(|id| is_message_id(id)).collect())
    }

    /// Returns the subjects of a run's messages in a stream.
    async fn subjects(&self, stream: Stream, run: &str) -> Result<Vec<String>, NatsError> {
        check_run(run)?;
        let layout = &self.link.layout;
        Ok(self.link.subjects(&layout.stream(stream), &layout.run_subjects(stream, run)).await?)
    }

    /// Removes a run's messages from a stream; returns their number.
    async fn purge(&self, stream: Stream, run: &str) -> Result<u64, NatsError> {
        let layout = &self.link.layout;
        Ok(self.link.purge(&layout.stream(stream), &layout.run_subjects(stream, run)).await?)
    }

    async fn there(&self, stream: &str) -> Result<(), NatsError> {
        self.link.api::<Value>(&format!("STREAM.INFO.{stream}"), &Value::Null).await?;
        Ok(())
    }

    async fn bucket(&self, bucket: Bucket) -> Result<KeyValue, NatsError> {
        self.there(&format!("KV_{}", self.link.layout.bucket(bucket))).await?;
        Ok(KeyValue::new(self.link.clone(), bucket))
    }
}
