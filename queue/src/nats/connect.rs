//! Opens a connection, or explains why it failed.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use async_nats::{Client, ConnectError, ConnectErrorKind, Event, ServerAddr, ServerError};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};

use super::link::{Failure, Link};
use super::server::ConnectionState;
use super::{Access, Connecting, NatsError};

/// Oldest supported server version. Since 2.9, the end of a pull request reports the number of undelivered
/// messages.
const OLDEST: (u32, u32) = (2, 9);

/// Time without a connection before the first warning. Each further warning follows after twice the elapsed
/// time.
const SAID_AFTER: Duration = Duration::from_secs(5);

/// A connection and the receivers of its events.
pub(super) struct Connected {
    pub(super) client: Client,
    pub(super) connection: watch::Receiver<ConnectionState>,
    pub(super) violations: watch::Receiver<String>,
}

/// Connects. Retries while no server can be reached, until the time limit.
pub(super) async fn connect(access: &Access, connecting: &Connecting) -> Result<Connected, NatsError> {
    let servers: Vec<ServerAddr> = access
        .url
        .split(',')
        .map(|server| {
            server
                .parse()
                .map_err(|_| NatsError::Address(format!("invalid address of a NATS server `{server}`")))
        })
        .collect::<Result<_, _>>()?;
    let deadline = connecting.patience.map(|patience| Instant::now() + patience);
    let mut pause = Duration::from_millis(100);
    let began = Instant::now();
    let mut say = SAID_AFTER;
    loop {
        let (state, connection) = watch::channel(ConnectionState { connected: true, reconnections: 0 });
        let (violation, violations) = watch::channel(String::new());
        let (state, violation) = (Arc::new(state), Arc::new(violation));
        let begun = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let options = access
            .options()
            .await?
            .name(&connecting.name)
            .connection_timeout(Duration::from_secs(5))
            // Detects a peer that is cut off: three pings without a response end the connection.
            .ping_interval(Duration::from_secs(5))
            .reconnect_delay_callback(reconnect_delay)
            .event_callback(move |event| {
                handle(&event, &state, &violation, &begun);
                std::future::ready(())
            });
        let error = match options.connect(servers.as_slice()).await {
            Ok(client) => return Ok(Connected { client, connection, violations }),
            Err(error) => explain(&error, access),
        };
        let passing = matches!(error, NatsError::Unreachable(_));
        if !passing || deadline.is_some_and(|deadline| Instant::now() + pause >= deadline) {
            return Err(error);
        }
        if began.elapsed() >= say {
            tracing::warn!("not connected for {} s: {error}; retrying", began.elapsed().as_secs());
            say = began.elapsed() * 2;
        }
        sleep(pause).await;
        pause = (pause * 2).min(Duration::from_secs(2));
    }
}

fn reconnect_delay(attempts: usize) -> Duration {
    let doublings = u32::try_from(attempts.saturating_sub(2)).unwrap_or(u32::MAX).min(7);
    if attempts <= 1 { Duration::ZERO } else { Duration::from_millis(20 << doublings) }
}

fn handle(
    event: &Event,
    state: &watch::Sender<ConnectionState>,
    violation: &watch::Sender<String>,
    begun: &std::sync::atomic::AtomicBool,
) {
    match event {
        Event::Connected => {
            let again = begun.swap(true, std::sync::atomic::Ordering::Relaxed);
            if again {
                state.send_modify(|state| {
                    state.connected = true;
                    state.reconnections += 1;
                });
            }
        }
        Event::Disconnected | Event::Closed => state.send_modify(|state| state.connected = false),
        Event::ServerError(ServerError::Other(text))
            if text.to_lowercase().contains("permissions violation") =>
        {
            tracing::warn!(text, "permission denied by the NATS server");
            violation.send_modify(|violation| violation.clone_from(text));
        }
        Event::ServerError(error) => tracing::warn!(%error, "the NATS server reported an error"),
        Event::SlowConsumer(_) => {
            tracing::warn!("dropped messages from the NATS server: this process received them too slowly");
        }
        _ => {}
    }
}

/// Converts a connection error to an error with its cause and a hint.
fn explain(error: &ConnectError, access: &Access) -> NatsError {
    let url = &access.url;
    let mut causes: Vec<String> = Vec::new();
    for cause in std::iter::successors(error.source(), |&cause| cause.source()) {
        let text = cause.to_string();
        if !causes.iter().any(|known| known.contains(&text)) {
            causes.push(text);
        }
    }
    let why = if causes.is_empty() { error.kind().to_string() } else { causes.join(": ") };
    let plain = why.to_lowercase();
    match error.kind() {
        ConnectErrorKind::AuthorizationViolation => NatsError::Denied(format!(
            "the NATS server at {url} rejected {}; hint: check user, password, token, nkey or credentials \
             file",
            access.presented()
        )),
        ConnectErrorKind::Authentication => NatsError::Denied(format!(
            "failed to authenticate with {} at {url}; hint: check that the seed is complete",
            access.presented()
        )),
        ConnectErrorKind::ServerParse => NatsError::Address(format!("{url} is not a NATS server: {why}")),
        _ if plain.contains("authentication expired") || plain.contains("authentication revoked") => {
            NatsError::Denied(format!(
                "the NATS server at {url} no longer accepts {}: {why}",
                access.presented()
            ))
        }
        _ if plain.contains("unknownissuer") || plain.contains("unknown issuer") => NatsError::Tls(format!(
            "the certificate of the NATS server at {url} is signed by an unknown certificate authority: {why}"
        )),
        _ if plain.contains("invalidcontenttype") => NatsError::PlainText(format!(
            "the NATS server at {url} does not support TLS, which is required by the settings"
        )),
        kind if kind == ConnectErrorKind::Tls
            || ["certificate", "tls", "fatal alert", "platform certs"]
                .iter()
                .any(|word| plain.contains(word)) =>
        {
            NatsError::Tls(format!("failed to open a TLS connection to the NATS server at {url}: {why}"))
        }
        _ => NatsError::Unreachable(format!("cannot reach a NATS server at {url}: {why}")),
    }
}

/// Checks the server's version and its support of JetStream.
pub(super) async fn check(link: &Link, access: &Access) -> Result<(), NatsError> {
    let url = &access.url;
    let version = parsed(&link.version);
    if version.is_none_or(|version| version < OLDEST) {
        return Err(NatsError::Unsuitable(format!(
            "the NATS server at {url} is version {}, but {}.{} or later is required; hint: install a newer \
             nats-server",
            link.version, OLDEST.0, OLDEST.1
        )));
    }
    // A server without JetStream may be connected to others that have it, so its own setting is not
    // sufficient.
    let alone = !link.client.server_info().jetstream;
    let patience = Duration::from_secs(if alone { 1 } else { 10 });
    let asked =
        tokio::time::timeout(patience, link.api::<serde_json::Value>("INFO", &serde_json::Value::Null)).await;
    match asked {
        // A user without permission for this request may still have the required permissions.
        Ok(Ok(_) | Err(Failure::Refused(_))) => Ok(()),
        Ok(Err(Failure::Api(error))) => Err(NatsError::Unsuitable(format!(
            "the NATS server at {url} does not support JetStream for {} ({}); hint: enable JetStream for the \
             account",
            access.presented(),
            error.description
        ))),
        Ok(Err(Failure::Unreachable(_))) | Err(_) if alone => Err(NatsError::Unsuitable(format!(
            "the NATS server at {url} runs without JetStream; hint: start it with `nats-server -js`, or \
             write `jetstream {{}}` in its configuration"
        ))),
        Ok(Err(Failure::Unreachable(why))) => {
            Err(NatsError::Unreachable(format!("JetStream at {url} does not respond: {why}")))
        }
        Err(_) => Err(NatsError::Unreachable(format!("JetStream at {url} does not respond"))),
    }
}

fn parsed(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.trim_start_matches('v').split('.');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_compare_by_number() {
        assert!(parsed("2.10.4").unwrap() > OLDEST);
        assert!(parsed("2.9.0-beta").unwrap() >= OLDEST);
        assert!(parsed("2.8.4").unwrap() < OLDEST);
        assert_eq!(parsed("what"), None);
    }

    #[test]
    fn reconnecting_is_quick_first_and_never_rare() {
        assert_eq!(reconnect_delay(1), Duration::ZERO);
        assert!((0..100).all(|attempt| reconnect_delay(attempt) <= Duration::from_secs(3)));
    }
}
