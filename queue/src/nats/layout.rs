//! Names of streams, subjects, buckets and consumers on the server, and their size limits.

use std::time::Duration;

use super::NatsError;

/// Prefix of every name.
const PREFIX: &str = "lumos";

/// Names, limits and durations on the server. All processes that share the queues of a server must use the same
/// protocol. Limits apply when streams are created; existing streams keep theirs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layout {
    /// Protocol number, part of every name, so that processes of different protocols never receive each other's
    /// messages.
    pub protocol: u32,
    /// Number of replicas in a cluster.
    pub replicas: usize,
    /// Size limit of the results stream in bytes; -1 for no limit. Beyond it results are rejected, never dropped. A
    /// server with less space gets a smaller stream.
    pub results_max_bytes: i64,
    /// Maximum number of messages in the results stream; -1 for no limit.
    pub results_max_messages: i64,
    /// Size limit of the work stream in bytes; -1 for no limit. A server with less space gets a smaller stream.
    pub work_max_bytes: i64,
    /// Duration of a lease without an extension.
    pub lease: Duration,
    /// Maximum size of a message body after decompression, in bytes.
    pub body_limit: usize,
    /// Time after which a worker's notice expires if it is not written again.
    pub workers_max_age: Duration,
    /// Time after which an owner's claim expires if it is not written again.
    pub owners_max_age: Duration,
}

impl Default for Layout {
    fn default() -> Self {
        Self {
            protocol: 2,
            replicas: 1,
            results_max_bytes: 8 << 30,
            results_max_messages: 1_000_000,
            work_max_bytes: 16 << 30,
            lease: Duration::from_secs(30),
            body_limit: 64 << 20,
            workers_max_age: Duration::from_secs(15),
            owners_max_age: Duration::from_secs(15),
        }
    }
}

/// The streams of messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stream {
    Work,
    Results,
}

impl Stream {
    pub(super) const ALL: [Self; 2] = [Self::Work, Self::Results];

    fn word(self) -> &'static str {
        match self {
            Self::Work => "work",
            Self::Results => "results",
        }
    }
}

/// A consumer on the server.
#[derive(Debug, Clone)]
pub(super) struct ConsumerName {
    pub(super) stream: String,
    pub(super) name: String,
    /// Subjects of its messages, which end in `>`.
    pub(super) filter: String,
}

/// The key-value buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bucket {
    Runs,
    Workers,
    Owners,
    Status,
}

impl Bucket {
    pub(super) const ALL: [Self; 4] = [Self::Runs, Self::Workers, Self::Owners, Self::Status];

    /// Whether its values survive a restart of the server. Values of the other buckets are rewritten every
    /// few seconds and must not be stored on disk: in nats-server 2.9, a bucket whose disk was full once
    /// hangs, and so does every connection that writes to it.
    pub(super) fn is_kept(self) -> bool {
        matches!(self, Self::Runs)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Runs => "runs",
            Self::Workers => "workers",
            Self::Owners => "owners",
            Self::Status => "status",
        }
    }
}

impl Layout {
    /// `lumos.2`: prefix of subjects.
    fn root(&self) -> String {
        format!("{PREFIX}.{}", self.protocol)
    }

    /// `lumos-2-<what>`: name of a stream or bucket.
    pub(super) fn name(&self, what: &str) -> String {
        format!("{PREFIX}-{}-{what}", self.protocol)
    }

    pub(super) fn stream(&self, stream: Stream) -> String {
        self.name(stream.word())
    }

    /// Subjects of all messages of a stream.
    pub(super) fn subjects(&self, stream: Stream) -> String {
        format!("{}.{}.>", self.root(), stream.word())
    }

    /// Subjects of a run's messages in a stream: work over all shards, or results.
    pub(super) fn run_subjects(&self, stream: Stream, run: &str) -> String {
        match stream {
            Stream::Work => format!("{}.work.*.*.{run}.>", self.root()),
            Stream::Results => format!("{}.>", self.results_root(run)),
        }
    }

    /// Subject for testing whether a stream stores messages. It belongs to no run, and its shard does not exist.
    pub(super) fn probe(&self, stream: Stream) -> String {
        match stream {
            Stream::Work => format!("{}.work.probe.0.probe", self.root()),
            Stream::Results => format!("{}.results.probe", self.root()),
        }
    }

    /// Name of the stream that reserves space for the buckets.
    pub(super) fn room_stream(&self) -> String {
        self.name("room")
    }

    /// Subject of that stream. Nothing is published to it.
    pub(super) fn room_subject(&self) -> String {
        format!("{}.room", self.root())
    }

    /// The consumer of a shard's messages, over all runs.
    pub(super) fn shard_consumer(&self, shard: &Shard) -> ConsumerName {
        ConsumerName {
            stream: self.stream(Stream::Work),
            name: shard.consumer(),
            filter: format!("{}.work.{}.{}.>", self.root(), shard.needs, shard.priority),
        }
    }

    /// The consumer of a run's results.
    pub(super) fn results_consumer(&self, run: &str) -> ConsumerName {
        ConsumerName {
            stream: self.stream(Stream::Results),
            name: format!("results-{run}"),
            filter: self.run_subjects(Stream::Results, run),
        }
    }

    /// Prefix of the subjects of a shard's messages of one run, before the message id.
    pub(super) fn shard_root(&self, shard: &Shard, run: &str) -> String {
        format!("{}.work.{}.{}.{run}", self.root(), shard.needs, shard.priority)
    }

    /// Returns the shard (`<needs>.<priority>`) in the subject of a work message.
    pub(super) fn shard_of(&self, subject: &str) -> Option<String> {
        let mut tokens = subject.strip_prefix(&format!("{}.work.", self.root()))?.split('.');
        Some(format!("{}.{}", tokens.next()?, tokens.next()?))
    }

    /// Prefix of the subjects of a run's results, before the message id.
    pub(super) fn results_root(&self, run: &str) -> String {
        format!("{}.results.{run}", self.root())
    }

    /// Subject to which a worker publishes its latest claims.
    pub(super) fn claims_of(&self, worker: &str) -> String {
        format!("{}.claims.{worker}", self.root())
    }

    /// Subjects of the claims of all workers.
    pub(super) fn claims(&self) -> String {
        format!("{}.claims.*", self.root())
    }

    pub(super) fn bucket(&self, bucket: Bucket) -> String {
        self.name(bucket.name())
    }

    /// Maximum age of the values of a bucket; zero for no limit.
    pub(super) fn max_age(&self, bucket: Bucket) -> Duration {
        match bucket {
            Bucket::Workers => self.workers_max_age,
            Bucket::Owners => self.owners_max_age,
            Bucket::Runs | Bucket::Status => Duration::ZERO,
        }
    }

    /// Whether a lease token belongs to one of these streams.
    pub(super) fn is_lease_token(&self, token: &str) -> bool {
        parse_lease_token(token).is_some_and(|(stream, _)| self.has_stream(stream))
    }

    /// Whether this is the name of the stream of work or of results.
    pub(super) fn has_stream(&self, name: &str) -> bool {
        Stream::ALL.iter().any(|stream| self.stream(*stream) == name)
    }
}

/// Returns the stream of a lease token, and the number of deliveries of the message, including this one:
/// `$JS.ACK.<stream>.<consumer>.<deliveries>.…` and four more numbers. Some servers add domain and account
/// before the stream, and a random token at the end.
pub(super) fn parse_lease_token(token: &str) -> Option<(&str, u32)> {
    let plain = |part: &str| {
        !part.is_empty() && part.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'*' && byte != b'>')
    };
    let parts: Vec<&str> = token.split('.').collect();
    if token.len() > 512 || !token.starts_with("$JS.ACK.") || !parts.iter().all(|part| plain(part)) {
        return None;
    }
    match *parts {
        [_, _, stream, _, deliveries, _, _, _, _]
        | [_, _, _, _, stream, _, deliveries, _, _, _, _]
        | [_, _, _, _, stream, _, deliveries, _, _, _, _, _] => {
            Some((stream, deliveries.parse().unwrap_or(1)))
        }
        _ => None,
    }
}

/// The two parts of a shard's name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Shard {
    needs: String,
    priority: u8,
}

impl Shard {
    pub(super) fn parse(text: &str) -> Result<Self, NatsError> {
        let wrong =
            || NatsError::Address(format!("invalid shard `{text}`: expected <needs>.<priority 0 to 9>"));
        let (needs, priority) = text.split_once('.').ok_or_else(wrong)?;
        let priority = match priority.as_bytes() {
            [digit @ b'0'..=b'9'] => digit - b'0',
            _ => return Err(wrong()),
        };
        if !is_token(needs) {
            return Err(wrong());
        }
        Ok(Self { needs: needs.to_owned(), priority })
    }

    fn consumer(&self) -> String {
        format!("lane-{}-{}", self.needs, self.priority)
    }
}

/// Whether a text is valid as one token of a subject and as part of a name: letters, digits, `_` and `-`.
pub(super) fn is_token(text: &str) -> bool {
    text.len() <= 200 && is_message_id(text)
}

/// Maximum length of a message id. The id ends a subject; servers accept subjects four times as long.
pub(super) const LONGEST_ID: usize = 1_500;

/// Whether a text is a valid message id: letters, digits, `_` and `-`.
pub(super) fn is_message_id(text: &str) -> bool {
    (1..=LONGEST_ID).contains(&text.len())
        && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'))
}

pub(super) fn check_run(run: &str) -> Result<(), NatsError> {
    if is_token(run) { Ok(()) } else { Err(NatsError::Address(format!("invalid run token `{run}`"))) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_tokens_of_these_streams_are_recalled() {
        let layout = Layout::default();
        for good in [
            "$JS.ACK.lumos-2-work.lane-ab-0.1.2.3.1700000000000000000.0",
            "$JS.ACK.lumos-2-results.results-x.1.2.3.4.0",
            "$JS.ACK._.hash.lumos-2-work.lane-ab-0.1.2.3.4.0",
            "$JS.ACK.hub.hash.lumos-2-work.lane-ab-0.1.2.3.4.0.random",
        ] {
            assert!(layout.is_lease_token(good), "{good}");
        }
        for bad in [
            "",
            "$JS.API.STREAM.DELETE.lumos-2-work",
            "$JS.ACK.other.lane-ab-0.1.2.3.4.0",
            "$JS.ACK.lumos-2-work.lane-ab-0.1.2.3.4.>",
            "$JS.ACK.lumos-2-work.lane-ab-0.1.2.3.4",
            "$JS.ACK.lumos-2-work.lane ab.1.2.3.4.0",
            "$JS.ACK.lumos-2-work..1.2.3.4.0",
            "$JS.ACK.lumos-3-work.lane-ab-0.1.2.3.4.0",
            "$JS.ACK.lumos-2-status.lane-ab-0.1.2.3.4.0",
            "$JS.ACK.lumos-2-work-2.lane-ab-0.1.2.3.4.0",
            "$JS.ACK.lumos2-2-work.lane-ab-0.1.2.3.4.0",
        ] {
            assert!(!layout.is_lease_token(bad), "{bad}");
        }
    }

    #[test]
    fn subjects_of_work_contain_their_shard() {
        let layout = Layout::default();
        let root = layout.shard_root(&Shard::parse("00ff.3").unwrap(), "aa");
        assert_eq!(layout.shard_of(&format!("{root}.unit-1")).as_deref(), Some("00ff.3"));
        assert_eq!(layout.shard_of(&format!("{}.unit-1", layout.results_root("aa"))), None);
    }

    #[test]
    fn shards_are_two_tokens() {
        assert_eq!(Shard::parse("00ff.3").unwrap().consumer(), "lane-00ff-3");
        for bad in ["", "x", "x.", "x.10", "x.y", ".1", "a.b.1", "a*.1"] {
            assert!(Shard::parse(bad).is_err(), "{bad}");
        }
    }
}
