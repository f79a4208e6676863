//! Follows the bucket of notices: records its changes, and fetches the shared inputs of new runs.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::future::{BoxFuture, FutureExt, OptionFuture};
use futures::{Stream, StreamExt};
use lumos_queue::nats::{Change, NatsError};
use lumos_tasks::ContentHash;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use super::Catalogue;
use crate::fleet::source::SharedStore;

/// Delay before a failed fetch is retried. It doubles with every further failure of the same inputs.
const RETRY: Duration = Duration::from_secs(2);
/// Maximum delay before a failed fetch is retried.
const LONGEST_RETRY: Duration = Duration::from_secs(15);

/// A pending fetch of shared inputs.
type Fetch<'a> = OptionFuture<BoxFuture<'a, (ContentHash, Result<Vec<u8>, NatsError>)>>;

impl Catalogue {
    /// Follows a bucket of notices until `stop` is cancelled. Shared inputs are fetched one at a time, while changes are
    /// recorded.
    pub(crate) async fn follow(
        self: Arc<Self>,
        changes: impl Stream<Item = Change> + Send,
        store: Arc<dyn SharedStore>,
        stop: CancellationToken,
    ) {
        let mut changes = pin!(changes);
        let store = &store;
        let serving = async {
            // When inputs that could not be fetched are fetched again, and the delay before that.
            let mut failed: BTreeMap<ContentHash, (Instant, Duration)> = BTreeMap::new();
            let mut fetch: Fetch<'_> = None.into();
            let mut fetching: Option<ContentHash> = None;
            let mut open = true;
            loop {
                let wanted = self.wanted();
                if !open && wanted.is_empty() {
                    break;
                }
                failed.retain(|hash, _| wanted.contains(hash));
                if fetching.take_if(|hash| !wanted.contains(hash)).is_some() {
                    fetch = None.into();
                }
                // Inputs that did not fail come first.
                let next = wanted.iter().map(|hash| (failed.get(hash).map(|(at, _)| *at), hash)).min();
                let now = Instant::now();
                let at = next.and_then(|(at, _)| at).unwrap_or(now);
                if let Some((_, hash)) = next
                    && fetching.is_none()
                    && at <= now
                {
                    let hash = hash.clone();
                    fetching = Some(hash.clone());
                    let fetched = async move {
                        let bytes = store.get(&hash).await;
                        (hash, bytes)
                    };
                    fetch = Some(fetched.boxed()).into();
                }
                tokio::select! {
                    change = changes.next(), if open => match change {
                        Some(change) => self.update(&change.key, change.value.as_deref()),
                        None => open = false,
                    },
                    Some((hash, bytes)) = &mut fetch, if fetching.is_some() => {
                        fetching = None;
                        if bytes.is_err() {
                            let before = failed.get(&hash).map(|(_, delay)| *delay);
                            let delay = before.map_or(RETRY, |before| (before * 2).min(LONGEST_RETRY));
                            failed.insert(hash.clone(), (Instant::now() + delay, delay));
                        }
                        self.supply(&hash, bytes);
                    }
                    () = sleep_until(at), if fetching.is_none() && next.is_some() => {}
                }
            }
        };
        stop.run_until_cancelled(serving).await;
    }
}
