//! Number of browser sessions that fit on a machine.

use std::num::NonZero;

/// Memory reserved for one session, in bytes.
const SESSION: u64 = 512 << 20;

/// Returns the number of sessions: at most one per core and as many as fit into free memory, at least one.
/// More sessions than cores lower the total throughput.
pub(super) fn sessions() -> usize {
    let cores = std::thread::available_parallelism().map_or(1, NonZero::get);
    fitting(cores, lumos_engine::free_memory())
}

fn fitting(cores: usize, free: Option<u64>) -> usize {
    let room = free.map_or(cores, |free| usize::try_from(free / SESSION).unwrap_or(usize::MAX));
    cores.min(room).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_and_memory_are_both_limits() {
        assert_eq!(fitting(4, None), 4);
        assert_eq!(fitting(4, Some(8 << 30)), 4);
        assert_eq!(fitting(4, Some(1 << 30)), 2);
        assert_eq!(fitting(4, Some(0)), 1);
    }
}
