//! Huge pages for large buffers that are read as a whole in every step: the weights.
//!
//! With pages of 4 KiB, a processor spends part of its time on finding the pages. Linux gives out pages of 2 MiB where a
//! program asks for them (`/sys/kernel/mm/transparent_hugepage/enabled` is `madvise` or `always`), if they are free.
#![allow(unsafe_code)]

use std::mem::MaybeUninit;

/// Smallest buffer for which the request is worth it: two huge pages, so that at least one is whole.
const SMALLEST: usize = 4 << 20;

/// Returns an empty vector with memory for `capacity` elements, on huge pages if it is large and the system has them.
pub fn with_capacity<T>(capacity: usize) -> Vec<T> {
    let mut buffer = Vec::with_capacity(capacity);
    // Before the first write, which chooses the pages.
    request(buffer.spare_capacity_mut());
    buffer
}

#[cfg(target_os = "linux")]
fn request<T>(memory: &mut [MaybeUninit<T>]) {
    const PAGE: usize = 4096;
    let bytes = size_of_val(memory);
    if bytes < SMALLEST {
        return;
    }
    let start = memory.as_mut_ptr().cast::<u8>();
    let unaligned = start.align_offset(PAGE);
    // SAFETY: the range is part of the buffer, and the advice does not change its contents. An error means that there are
    // no huge pages.
    unsafe {
        libc::madvise(
            start.wrapping_add(unaligned).cast(),
            (bytes - unaligned) / PAGE * PAGE,
            libc::MADV_HUGEPAGE,
        );
    }
}

#[cfg(not(target_os = "linux"))]
fn request<T>(_: &mut [MaybeUninit<T>]) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_of_any_size_are_usable() {
        for length in [0usize, 1, 4095, SMALLEST - 1, SMALLEST, 3 * SMALLEST + 17] {
            let mut buffer = with_capacity::<u8>(length);
            buffer.resize(length, 7);
            assert!(buffer.capacity() >= length && buffer.iter().all(|byte| *byte == 7));
        }
    }
}
