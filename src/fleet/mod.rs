//! What spans several machines: reaching the queue, reading what coordinators and workers say of themselves.

pub(crate) mod view;

use std::path::Path;
use std::time::Duration;

use lumos_coordinator::Manifest;
use lumos_queue::nats::{Access, Connecting, KeyValue, Layout, NatsError, Secret, Server};
use lumos_tasks::fleet::{PROTOCOL, RunNotice, RunStatus, RunToken, WorkerNotice};
use serde::de::DeserializeOwned;

use crate::cli::QueueArgs;
use crate::exit::Failure;

/// How to reach the queue; `None` for the one in this process's memory.
pub(crate) fn access(arguments: &QueueArgs) -> Result<Option<Access>, Failure> {
    let url = match arguments.queue.as_deref().map(str::trim) {
        None | Some("" | "memory") => return Ok(None),
        Some(url) => url,
    };
    let mut access = Access::new(url).map_err(|error| {
        Failure::usage(error).hint("write --queue nats://host:4222, or leave it out to run in this process")
    })?;
    if let Some(user) = &arguments.queue_user {
        access.user = Some(user.clone());
    }
    if let Some(password) = &arguments.queue_password {
        access.password = Some(Secret::new(password));
    }
    if let Some(token) = &arguments.queue_token {
        access.token = Some(Secret::new(token));
    }
    access.nkey_seed.clone_from(&arguments.queue_nkey);
    access.credentials.clone_from(&arguments.queue_credentials);
    access.tls_ca.clone_from(&arguments.queue_tls_ca);
    access.tls_certificate.clone_from(&arguments.queue_tls_certificate);
    access.tls_key.clone_from(&arguments.queue_tls_key);
    Ok(Some(access))
}

/// Connects to a queue that the command cannot do without.
pub(crate) async fn connect(
    arguments: &QueueArgs,
    name: &str,
    patience: Option<Duration>,
) -> Result<Server, Failure> {
    let access = access(arguments)?.ok_or_else(|| {
        Failure::input("this command needs a queue that several machines share")
            .hint("write --queue nats://host:4222, or set LUMOS_QUEUE")
    })?;
    connect_to(&access, arguments, name, patience, None).await
}

/// Connects; the lease is that of lanes which are made anew.
pub(crate) async fn connect_to(
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

/// A queue that refuses is wrong usage: its message says what to change.
pub(crate) fn queue_failure(error: NatsError) -> Failure {
    Failure::usage(error)
}

/// Every value of a bucket that can be read; others are told of and passed over.
pub(crate) async fn values<T: DeserializeOwned>(bucket: &KeyValue) -> Result<Vec<T>, Failure> {
    let mut values = Vec::new();
    for (key, bytes) in bucket.entries().await? {
        match serde_json::from_slice(&bytes) {
            Ok(value) => values.push(value),
            Err(error) => tracing::warn!(key, %error, "what stands in the bucket is none of ours"),
        }
    }
    Ok(values)
}

/// How runs and workers stand, oldest run first.
pub(crate) async fn look(
    server: &Server,
    run: Option<&RunToken>,
) -> Result<(Vec<RunStatus>, Vec<WorkerNotice>), Failure> {
    let mut runs: Vec<RunStatus> = values(&server.status().await.map_err(queue_failure)?).await?;
    if let Some(run) = run {
        runs.retain(|status| &status.run == run);
    }
    runs.sort_by_key(|status| status.started_ms);
    let mut workers: Vec<WorkerNotice> = values(&server.workers().await.map_err(queue_failure)?).await?;
    workers.sort_by(|left, right| left.name.cmp(&right.name));
    Ok((runs, workers))
}

/// The run that a person means by a name, a token or a folder.
pub(crate) async fn find_run(server: &Server, meant: &str) -> Result<RunToken, Failure> {
    if let Ok(token) = meant.parse::<RunToken>() {
        return Ok(token);
    }
    if let Ok(manifest) = Manifest::read(Path::new(meant)) {
        return Ok(lumos_coordinator::fleet::run_token(&manifest));
    }
    let notices: Vec<RunNotice> = values(&server.runs().await.map_err(queue_failure)?).await?;
    let mut found = notices.iter().filter(|notice| notice.name == meant);
    match (found.next(), found.next()) {
        (Some(one), None) => Ok(one.run.clone()),
        (Some(_), Some(_)) => Err(Failure::input(format!("several runs are called {meant}"))
            .hint("give the run's token; `lumos status` shows it")),
        (None, _) => {
            let names: Vec<_> = notices.iter().map(|notice| notice.name.as_str()).collect();
            let known = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
            Err(Failure::input(format!("no run on this queue is called {meant}; there are: {known}")))
        }
    }
}
