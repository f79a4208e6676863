//! Bounded in-memory queue for a single process.

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use tokio::sync::Notify;

use crate::lease::{Lease, LeaseControl};
use crate::{Queue, QueueError};

/// A bounded queue within one process. Cloning gives another handle to the same queue.
///
/// A lease lasts as long as its holder: within one process a holder cannot disappear without dropping it, so leases
/// do not expire and [`Lease::extend`] has no effect.
pub struct MemoryQueue<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Clone for MemoryQueue<T> {
    fn clone(&self) -> Self {
        Self { shared: Arc::clone(&self.shared) }
    }
}

struct Shared<T> {
    capacity: usize,
    state: Mutex<State<T>>,
    /// Notified when a message becomes available or is settled, and when the queue is closed.
    filled: Notify,
    /// Notified when there is space, and when the queue is closed.
    emptied: Notify,
}

struct State<T> {
    ready: VecDeque<Message<T>>,
    leased: HashMap<String, Message<T>>,
    /// Ids of the messages in `ready`, to detect duplicates.
    ready_ids: HashSet<String>,
    closed: bool,
}

#[derive(Clone)]
struct Message<T> {
    id: String,
    body: T,
    deliveries: u32,
}

impl<T: Clone + Send + Sync + 'static> MemoryQueue<T> {
    /// Creates a queue for up to `capacity` messages that wait to be claimed. Publishing waits while it is
    /// full.
    pub fn bounded(capacity: usize) -> Self {
        Self {
            shared: Arc::new(Shared {
                capacity: capacity.max(1),
                state: Mutex::new(State {
                    ready: VecDeque::new(),
                    leased: HashMap::new(),
                    ready_ids: HashSet::new(),
                    closed: false,
                }),
                filled: Notify::new(),
                emptied: Notify::new(),
            }),
        }
    }

    /// Returns the number of messages that wait to be claimed.
    pub fn waiting(&self) -> usize {
        self.shared.lock().ready.len()
    }

    /// Returns the number of leased messages.
    pub fn leased(&self) -> usize {
        self.shared.lock().leased.len()
    }
}

impl<T> Shared<T> {
    /// Locks the state. Ignores poisoning, since the state is consistent after every statement.
    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl<T: Clone + Send + Sync + 'static> Queue<T> for MemoryQueue<T> {
    async fn publish(&self, id: &str, body: T) -> Result<(), QueueError> {
        loop {
            let emptied = self.shared.emptied.notified();
            tokio::pin!(emptied);
            emptied.as_mut().enable();
            {
                let mut state = self.shared.lock();
                if state.closed {
                    return Err(QueueError::Closed);
                }
                if state.leased.contains_key(id) || state.ready_ids.contains(id) {
                    return Ok(());
                }
                if state.ready.len() < self.shared.capacity {
                    state.ready_ids.insert(id.to_owned());
                    state.ready.push_back(Message { id: id.to_owned(), body, deliveries: 0 });
                    drop(state);
                    self.shared.filled.notify_waiters();
                    return Ok(());
                }
            }
            emptied.await;
        }
    }

    async fn claim(&self, max: usize) -> Result<Vec<Lease<T>>, QueueError> {
        loop {
            let filled = self.shared.filled.notified();
            tokio::pin!(filled);
            filled.as_mut().enable();
            {
                let mut state = self.shared.lock();
                let count = max.min(state.ready.len());
                if count > 0 {
                    let leases = (0..count).filter_map(|_| self.lease_next(&mut state)).collect();
                    drop(state);
                    self.shared.emptied.notify_waiters();
                    return Ok(leases);
                }
                // A leased message may be returned.
                if max == 0 || (state.closed && state.leased.is_empty()) {
                    return Ok(Vec::new());
                }
            }
            filled.await;
        }
    }

    fn close(&self) {
        self.shared.lock().closed = true;
        self.shared.filled.notify_waiters();
        self.shared.emptied.notify_waiters();
    }
}

impl<T: Clone + Send + Sync + 'static> MemoryQueue<T> {
    fn lease_next(&self, state: &mut State<T>) -> Option<Lease<T>> {
        let mut message = state.ready.pop_front()?;
        message.deliveries += 1;
        let (id, body, deliveries) = (message.id.clone(), message.body.clone(), message.deliveries);
        state.ready_ids.remove(&id);
        state.leased.insert(id.clone(), message);
        let control = MemoryLease { shared: Arc::clone(&self.shared), id: id.clone() };
        Some(Lease::new(id, body, deliveries, Box::new(control)))
    }
}

struct MemoryLease<T> {
    shared: Arc<Shared<T>>,
    id: String,
}

impl<T> MemoryLease<T> {
    fn settle(&self) -> Result<(), QueueError> {
        let settled = self.shared.lock().leased.remove(&self.id);
        // Claimers of a closed queue wait until its last message is settled.
        self.shared.filled.notify_waiters();
        settled.map(|_| ()).ok_or_else(|| QueueError::LeaseLost(self.id.clone()))
    }
}

#[async_trait]
impl<T: Clone + Send + Sync> LeaseControl for MemoryLease<T> {
    async fn acknowledge(&self) -> Result<(), QueueError> {
        self.settle()
    }

    async fn extend(&self) -> Result<(), QueueError> {
        let held = self.shared.lock().leased.contains_key(&self.id);
        if held { Ok(()) } else { Err(QueueError::LeaseLost(self.id.clone())) }
    }

    fn release(&self) {
        let mut state = self.shared.lock();
        if let Some(message) = state.leased.remove(&self.id) {
            state.ready_ids.insert(message.id.clone());
            state.ready.push_front(message);
        }
        drop(state);
        self.shared.filled.notify_waiters();
    }

    async fn terminate(&self) -> Result<(), QueueError> {
        self.settle()
    }
}
