//! The cores of the processor, which the models of a process share: their steps take turns.
//!
//! Models that compute at the same time take cores and caches from each other. One step after the other, each with all of
//! its threads, is faster, and the requests that arrive meanwhile make the next step of the others larger.

use std::collections::BTreeMap;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};

use rayon::ThreadPool;

use crate::error::LoadError;
use crate::options::{thread_count, thread_pool};

/// Threads of a model, with its place among the models that compute on this processor.
pub(crate) struct Compute {
    threads: Arc<ThreadPool>,
    cores: &'static Cores,
}

impl Compute {
    /// Returns the process's threads for this number; all available cores if `None`.
    pub(crate) fn with(threads: Option<usize>) -> Result<Self, LoadError> {
        static POOLS: Mutex<BTreeMap<usize, Weak<ThreadPool>>> = Mutex::new(BTreeMap::new());
        static CORES: Mutex<Option<&'static Cores>> = Mutex::new(None);
        let count = thread_count(threads).max(1);
        let mut pools = locked(&POOLS);
        let threads = match pools.get(&count).and_then(Weak::upgrade) {
            Some(threads) => threads,
            None => Arc::new(thread_pool(Some(count), "lumos-compute")?),
        };
        pools.insert(count, Arc::downgrade(&threads));
        let cores =
            *locked(&CORES).get_or_insert_with(|| Box::leak(Box::new(Cores::new(thread_count(None)))));
        Ok(Self { threads, cores })
    }

    /// Number of threads.
    pub(crate) fn count(&self) -> usize {
        self.threads.current_num_threads()
    }

    /// Waits for a turn with all threads.
    pub(crate) fn turn(&self) -> (Turn, &ThreadPool) {
        (self.cores.turn(self.count()), &self.threads)
    }

    /// Waits for a turn with the caller's thread only.
    pub(crate) fn single(&self) -> Turn {
        self.cores.turn(1)
    }
}

/// Cores that are taken in turns, first come, first served.
struct Cores {
    total: usize,
    state: Mutex<State>,
    changed: Condvar,
}

struct State {
    free: usize,
    /// The ticket of the next turn.
    next: u64,
    /// The ticket that may take cores.
    serving: u64,
}

/// A turn, which ends when it is dropped.
#[must_use]
pub(crate) struct Turn {
    cores: &'static Cores,
    taken: usize,
}

impl Cores {
    fn new(total: usize) -> Self {
        let state = State { free: total, next: 0, serving: 0 };
        Self { total, state: Mutex::new(state), changed: Condvar::new() }
    }

    /// Waits until `count` cores are free, or all if there are fewer.
    fn turn(&'static self, count: usize) -> Turn {
        let taken = count.min(self.total);
        let mut state = locked(&self.state);
        let ticket = state.next;
        state.next += 1;
        while state.serving != ticket || state.free < taken {
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        state.serving += 1;
        state.free -= taken;
        // The next may fit beside this one.
        if state.free > 0 && state.next > state.serving {
            self.changed.notify_all();
        }
        Turn { cores: self, taken }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut state = locked(&self.cores.state);
        state.free += self.taken;
        if state.next > state.serving {
            self.cores.changed.notify_all();
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn turns_never_take_more_cores_than_there_are_and_all_end() {
        let cores: &'static Cores = Box::leak(Box::new(Cores::new(3)));
        let (taken, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for index in 0..8 {
                let (taken, most) = (&taken, &most);
                scope.spawn(move || {
                    for round in 0..200 {
                        let turn = cores.turn(1 + (index + round) % 5);
                        let now = taken.fetch_add(turn.taken, Ordering::SeqCst) + turn.taken;
                        most.fetch_max(now, Ordering::SeqCst);
                        std::thread::yield_now();
                        taken.fetch_sub(turn.taken, Ordering::SeqCst);
                    }
                });
            }
        });
        let state = locked(&cores.state);
        assert_eq!((state.free, state.next, state.serving), (3, 1600, 1600));
        assert!((2..=3).contains(&most.load(Ordering::SeqCst)));
    }

    #[test]
    fn models_with_the_same_number_of_threads_share_them() {
        let (one, two, other) = (
            Compute::with(Some(2)).unwrap(),
            Compute::with(Some(2)).unwrap(),
            Compute::with(Some(3)).unwrap(),
        );
        assert!(Arc::ptr_eq(&one.threads, &two.threads));
        assert!(!Arc::ptr_eq(&one.threads, &other.threads));
        assert_eq!((one.count(), other.count()), (2, 3));
    }
}
