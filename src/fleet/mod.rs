//! Access to a queue for commands: connects, and reads the notices of coordinators and workers.

pub(crate) mod view;

use std::path::Path;
use std::time::Duration;

use lumos_coordinator::fleet::CoordinatorSettings;
use lumos_coordinator::manifest::Manifest;
use lumos_queue::nats::{Access, Connecting, Credential, KeyValue, Layout, NatsError, Server};
use lumos_tasks::fleet::{PROTOCOL, RunNotice, RunStatus, RunToken, ShardId, WorkerNotice};
use serde::de::DeserializeOwned;

use crate::cli::{FleetArgs, QueueArgs};
use crate::exit::Failure;
use crate::settings::seconds;

/// How long commands wait for a queue.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Returns how to reach the queue, or `None` for the in-memory queue of this process.
fn access(arguments: &QueueArgs) -> Result<Option<Access>, Failure> {
    let Some(url) = arguments.url() else { return Ok(None) };
    let mut access = Access::new(url).map_err(|error| {
        Failure::usage(error).hint("pass --queue nats://HOST:4222, or omit it to run in this process")
    })?;
    access.user = arguments.queue_user.clone().or(access.user);
    access.password = arguments.queue_password.as_deref().map(Credential::new).or(access.password);
    access.token = arguments.queue_token.as_deref().map(Credential::new).or(access.token);
    access.nkey_seed.clone_from(&arguments.queue_nkey);
    access.credentials.clone_from(&arguments.queue_credentials);
    access.tls_ca.clone_from(&arguments.queue_tls_ca);
    access.tls_certificate.clone_from(&arguments.queue_tls_certificate);
    access.tls_key.clone_from(&arguments.queue_tls_key);
    Ok(Some(access))
}

/// Connects to a queue that the command requires.
pub(crate) async fn connect(
    arguments: &QueueArgs,
    name: &str,
    patience: Option<Duration>,
) -> Result<Server, Failure> {
    let access = access(arguments)?.ok_or_else(|| {
        Failure::input("this command needs a NATS queue")
            .hint("pass --queue nats://HOST:4222, or set LUMOS_QUEUE")
    })?;
    connect_to(&access, arguments, name, patience, None).await
}

/// Connects to the queue whose workers execute a run, if one is specified, and returns it with the coordinator's
/// settings.
pub(crate) async fn coordinator(
    arguments: &FleetArgs,
) -> Result<Option<(Server, CoordinatorSettings)>, Failure> {
    let Some(access) = access(&arguments.queue)? else { return Ok(None) };
    let lease = lease(arguments)?;
    let server =
        connect_to(&access, &arguments.queue, "lumos coordinator", Some(PATIENCE), Some(lease)).await?;
    let settings = CoordinatorSettings {
        priority: arguments.priority,
        drain_grace: seconds("--grace", arguments.grace)?,
        stall_warning: stall_warning(arguments)?,
        address: access.url.clone(),
        ..CoordinatorSettings::default()
    };
    Ok(Some((server, settings)))
}

/// Returns the time without a lease extension after which a unit is redelivered.
fn lease(arguments: &FleetArgs) -> Result<Duration, Failure> {
    let lease = seconds("--lease", arguments.lease)?;
    if lease.is_zero() {
        return Err(Failure::input("invalid value `0` for --lease: expected a positive number of seconds"));
    }
    Ok(lease)
}

/// Returns the time without progress before a warning.
pub(crate) fn stall_warning(arguments: &FleetArgs) -> Result<Duration, Failure> {
    seconds("--stall-warning", arguments.stall_warning)
}

/// Connects. `lease` applies to shards that are created.
async fn connect_to(
    access: &Access,
    arguments: &QueueArgs,
    name: &str,
    patience: Option<Duration>,
    lease: Option<Duration>,
) -> Result<Server, Failure> {
    let usual = Layout::default();
    let layout = Layout {
        protocol: PROTOCOL,
        replicas: arguments.queue_replicas.max(1),
        lease: lease.unwrap_or(usual.lease),
        ..usual
    };
    let connecting = Connecting { name: name.to_owned(), patience, layout };
    Server::connect(access, connecting).await.map_err(queue_failure)
}

/// A refusal by the queue is a usage error; its message contains what to change.
fn queue_failure(error: NatsError) -> Failure {
    let hint = match &error {
        NatsError::Tls(_) => Some(
            "pass the certificate authority of the server as a PEM file: --queue-tls-ca ca.pem (LUMOS_QUEUE_TLS_CA)",
        ),
        NatsError::PlainText(_) => Some(
            "enable TLS in the server, or connect without it: --queue nats://HOST:4222 and no --queue-tls-ca",
        ),
        NatsError::Unreachable(_) => {
            Some("start a server with `nats-server -js`, or check the address: --queue nats://HOST:4222")
        }
        _ => None,
    };
    Failure { hint: hint.map(str::to_owned), ..Failure::usage(error) }
}

/// Maximum number of list entries shown per notice, and maximum length of an error about one in characters.
const MOST_LISTED: usize = 100;
const LONGEST_ERROR: usize = 300;

/// Returns the values of a bucket that match their keys, each shortened right after reading. Any client of
/// the queue may have written them, so other values are counted and skipped. Returns no values if no
/// coordinator has set up the server.
async fn values<T: DeserializeOwned>(
    bucket: Result<KeyValue, NatsError>,
    key_of: impl Fn(&T) -> &str,
    shorten: impl Fn(&mut T),
) -> Result<Vec<T>, Failure> {
    let bucket = match bucket {
        Err(NatsError::Missing(_)) => return Ok(Vec::new()),
        bucket => bucket.map_err(queue_failure)?,
    };
    let (mut values, mut renamed, mut malformed) = (Vec::new(), Vec::new(), Vec::new());
    for (key, bytes) in bucket.entries().await? {
        match serde_json::from_slice(&bytes) {
            Ok(mut value) if key_of(&value) == key => {
                shorten(&mut value);
                values.push(value);
            }
            Ok(_) => renamed.push(key),
            Err(error) => malformed.push((key, error)),
        }
    }
    if let Some(key) = renamed.first() {
        let notices = renamed.len();
        tracing::warn!(notices, ?key, "ignored a notice on the queue: it is stored under a different name");
    }
    if let Some((key, error)) = malformed.first() {
        // Debug-formatted, because it may quote terminal control sequences.
        let error: String = error.to_string().chars().take(LONGEST_ERROR).collect();
        tracing::warn!(notices = malformed.len(), ?key, ?error, "ignored a malformed notice on the queue");
    }
    Ok(values)
}

/// Truncates what only a hostile worker sends: lists of many short texts use far more memory than bytes on
/// the wire.
fn shorten(notice: &mut WorkerNotice) {
    for list in [&mut notice.refusals, &mut notice.holdings.tools] {
        list.truncate(MOST_LISTED);
        list.shrink_to_fit();
    }
    notice.oldest.truncate(MOST_LISTED);
}

/// Returns the status of runs, or of one run, and of workers, with the oldest run first.
pub(crate) async fn look(
    server: &Server,
    run: Option<&str>,
) -> Result<(Vec<RunStatus>, Vec<WorkerNotice>), Failure> {
    let asked = match run {
        Some(run) => Some((run, find_run(server, run).await?)),
        None => None,
    };
    let mut runs: Vec<RunStatus> =
        values(server.status().await, |status: &RunStatus| status.run.as_str(), |_| {}).await?;
    if let Some((meant, token)) = asked {
        runs = status_of(runs, meant, &token)?;
    }
    runs.sort_by_key(|status| status.started_ms);
    let mut workers: Vec<WorkerNotice> =
        values(server.workers().await, |notice: &WorkerNotice| notice.name.as_str(), shorten).await?;
    workers.sort_by(|left, right| left.name.cmp(&right.name));
    Ok((runs, workers))
}

/// Returns the status of one run.
///
/// # Errors
/// If the queue does not have it: a token, or the run of a folder, may be of another queue.
fn status_of(mut runs: Vec<RunStatus>, meant: &str, token: &RunToken) -> Result<Vec<RunStatus>, Failure> {
    runs.retain(|status| status.run == *token);
    if runs.is_empty() {
        return Err(Failure::input(format!("run `{meant}` not found on this queue"))
            .hint("list the runs on the queue: lumos status"));
    }
    Ok(runs)
}

/// Returns the shards of every run.
pub(crate) async fn shards(server: &Server) -> Result<Vec<(RunToken, Vec<ShardId>)>, Failure> {
    let notices: Vec<RunNotice> =
        values(server.runs().await, |notice: &RunNotice| notice.run.as_str(), |_| {}).await?;
    Ok(notices.into_iter().map(|notice| (notice.run, notice.shards)).collect())
}

/// Finds a run by name, token or folder.
pub(crate) async fn find_run(server: &Server, meant: &str) -> Result<RunToken, Failure> {
    if let Ok(token) = meant.parse::<RunToken>() {
        return Ok(token);
    }
    if let Ok(manifest) = Manifest::read(Path::new(meant)) {
        return Ok(lumos_coordinator::fleet::run_token(&manifest));
    }
    let notices: Vec<RunNotice> =
        values(server.runs().await, |notice: &RunNotice| notice.run.as_str(), |_| {}).await?;
    let mut found = notices.iter().filter(|notice| notice.name == meant);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.run.clone()),
        (Some(_), Some(_)) => Err(Failure::input(format!("several runs are called `{meant}`"))
            .hint("pass the run's token, which `lumos status` prints")),
        (None, _) => {
            let names: Vec<_> = notices.iter().map(|notice| notice.name.as_str()).collect();
            let known = if names.is_empty() {
                "the queue has no runs".to_owned()
            } else {
                format!("known runs are {}", names.join(", "))
            };
            Err(Failure::input(format!("run `{meant}` not found on this queue: {}", view::printable(&known))))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_that_the_queue_does_not_have_is_an_error() {
        let run = view::tests::run();
        assert_eq!(status_of(vec![run.clone()], "sweep", &run.run).unwrap(), std::slice::from_ref(&run));
        let other: RunToken = "0123456789abcdef".parse().unwrap();
        for runs in [Vec::new(), vec![run]] {
            let failure = status_of(runs, "runs/other", &other).unwrap_err();
            assert_eq!(failure.error.to_string(), "run `runs/other` not found on this queue");
            assert!(failure.hint.unwrap().ends_with("lumos status"));
        }
    }

    #[test]
    fn leases_are_positive_numbers_of_seconds() {
        let parsed = |value: f64| {
            let arguments = FleetArgs { lease: value, ..FleetArgs::default() };
            lease(&arguments).map_err(|failure| failure.error.to_string())
        };
        assert_eq!(parsed(0.5), Ok(Duration::from_millis(500)));
        for invalid in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            let message = parsed(invalid).unwrap_err();
            assert!(message.starts_with(&format!("invalid value `{invalid}` for --lease: ")), "{message}");
        }
    }
}
