//! Memory limits for models: [`MemoryBudget`] shares a number of bytes between engines, and [`free_memory`]
//! returns the memory that the process can still allocate.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Size of a KV cache in bytes if the system does not report its free memory.
const WITHOUT_KNOWLEDGE: u64 = 1 << 30;
/// Minimum size of a small model's KV cache in bytes, however little its sequences need.
pub const SMALL_CACHE: u64 = 256 << 20;

/// Memory that the weights and KV caches of several engines share. Clones refer to the same budget.
///
/// An engine reserves its part when it is loaded, whether or not its cache is full yet, and releases it when
/// its last handle is dropped.
#[derive(Clone, Debug)]
pub struct MemoryBudget {
    inner: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    total: u64,
    used: AtomicU64,
}

impl MemoryBudget {
    /// Creates a budget of `bytes` bytes.
    pub fn new(bytes: u64) -> Self {
        Self { inner: Arc::new(Shared { total: bytes, used: AtomicU64::new(0) }) }
    }

    /// Total bytes.
    pub(crate) fn total(&self) -> u64 {
        self.inner.total
    }

    /// Bytes reserved by engines.
    pub fn used(&self) -> u64 {
        self.inner.used.load(Ordering::Acquire)
    }

    /// Free bytes.
    pub(crate) fn free(&self) -> u64 {
        self.total().saturating_sub(self.used())
    }

    /// Reserves `bytes` bytes, if they are free.
    pub(crate) fn reserve(&self, bytes: u64) -> Option<Reservation> {
        let total = self.inner.total;
        let more = |used: u64| used.checked_add(bytes).filter(|used| *used <= total);
        self.inner.used.fetch_update(Ordering::AcqRel, Ordering::Acquire, more).ok()?;
        Some(Reservation { budget: self.clone(), bytes })
    }
}

/// A part of a budget, released on drop.
#[derive(Debug)]
pub(crate) struct Reservation {
    budget: MemoryBudget,
    bytes: u64,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.budget.inner.used.fetch_sub(self.bytes, Ordering::AcqRel);
    }
}

/// Default size of a KV cache in bytes: half of the free memory, or `wanted` for all sequences at once if that is less; at
/// most what buffers of `buffers` bytes leave of the budget.
pub(crate) fn cache_share(budget: Option<&MemoryBudget>, wanted: u64, buffers: u64) -> u64 {
    let machine = free_memory().unwrap_or(WITHOUT_KNOWLEDGE);
    let free = budget.map_or(machine, |budget| budget.free().min(machine));
    let left = budget.map_or(u64::MAX, |budget| budget.free().saturating_sub(buffers));
    wanted.max(SMALL_CACHE).min(free / 2).min(left)
}

/// Default size of a KV cache on a device on which `available` bytes are free for it.
pub(crate) fn device_share(available: u64, wanted: u64) -> u64 {
    wanted.max(SMALL_CACHE).min(available)
}

/// What of `free` bytes of a device's memory an engine may use for its buffers and KV cache. Its libraries take memory
/// when they first compute: a tenth, at most 512 MiB, is left for them.
pub(crate) fn usable(free: u64) -> u64 {
    free - (free / 10).min(512 << 20)
}

/// Memory in bytes that this process can still allocate: the minimum of what Linux reports for the machine
/// and for the control group (version 2), whose page cache counts as free, as in `MemAvailable`. `None` if it is unknown.
pub fn free_memory() -> Option<u64> {
    let read = |path: &str| std::fs::read_to_string(Path::new(path)).ok();
    let number = |path: &str| read(path)?.trim().parse::<u64>().ok();
    let machine = available(&read("/proc/meminfo")?)?;
    let group = number("/sys/fs/cgroup/memory.max").zip(number("/sys/fs/cgroup/memory.current")).map_or(
        u64::MAX,
        |(most, current)| {
            let cached = read("/sys/fs/cgroup/memory.stat").map_or(0, |stat| page_cache(&stat));
            most.saturating_sub(current.saturating_sub(cached))
        },
    );
    Some(machine.min(group))
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kilobytes| kilobytes << 10)
}

/// Bytes of files in the `memory.stat` of a control group, which Linux drops when the group needs memory.
fn page_cache(stat: &str) -> u64 {
    let bytes = |line: &str| {
        let (name, bytes) = line.split_once(' ')?;
        matches!(name, "active_file" | "inactive_file").then(|| bytes.trim().parse::<u64>().ok())?
    };
    stat.lines().filter_map(bytes).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_taken_and_given_back() {
        let budget = MemoryBudget::new(100);
        let first = budget.reserve(60).unwrap();
        assert!(budget.reserve(41).is_none());
        let second = budget.clone().reserve(40).unwrap();
        assert_eq!((budget.total(), budget.used(), budget.free()), (100, 100, 0));
        drop(first);
        assert_eq!(budget.free(), 60);
        drop(second);
        assert_eq!(budget.used(), 0);
        assert!(budget.reserve(u64::MAX).is_none());
    }

    #[test]
    fn a_cache_gets_what_it_wants_or_half_of_what_is_free() {
        let budget = MemoryBudget::new(1 << 20);
        assert_eq!(cache_share(Some(&budget), 5, 0), 1 << 19);
        assert_eq!(cache_share(Some(&budget), 5, 1 << 19), 1 << 19);
        assert_eq!(cache_share(Some(&budget), 5, (1 << 20) - 100), 100);
        assert_eq!(cache_share(Some(&budget), 5, 1 << 21), 0);
        assert!(cache_share(None, 5, 0) <= SMALL_CACHE);
        assert_eq!((device_share(80 << 30, 5), device_share(80 << 30, u64::MAX)), (SMALL_CACHE, 80 << 30));
        assert_eq!((usable(100), usable(80 << 30)), (90, (80 << 30) - (512 << 20)));
        assert_eq!(available("MemTotal: 9 kB\nMemAvailable:    1000 kB\n"), Some(1_024_000));
        assert_eq!(available("MemTotal: 9 kB\n"), None);
        assert_eq!(
            page_cache("anon 9\nfile 700\ninactive_file 400\nactive_file 200\nfile_mapped 100\n"),
            600
        );
    }
}
