//! Handles failed allocations: the process ends with a message and exit code 1.
//!
//! By default a failed allocation aborts the process (SIGABRT), without a hint and without the information
//! that recorded outcomes are safe.

use std::alloc::{GlobalAlloc, Layout};
use std::io::Write;

use mimalloc::MiMalloc;

use crate::exit::Exit;

/// A request of this size results from invalid input, not from a lack of memory; the caller may handle its
/// failure.
const ABSURD: usize = 1 << 44;

/// The mimalloc allocator. A coordinator allocates and frees many small values per item, for which the system's
/// allocator takes three times as long.
pub(crate) struct Allocator;

// SAFETY: every call is forwarded to mimalloc unchanged; a null pointer is returned, or the process ends.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller upholds the contract, which is the same for mimalloc.
        checked(unsafe { MiMalloc.alloc(layout) }, layout.size())
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { MiMalloc.alloc_zeroed(layout) }, layout.size())
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        // SAFETY: as above.
        checked(unsafe { MiMalloc.realloc(block, layout, size) }, size)
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { MiMalloc.dealloc(block, layout) };
    }
}

/// Ends the process in the same way if a thread cannot be started; tokio and the standard library panic in
/// that case.
pub(crate) fn watch_threads() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        if said.contains("spawn") && said.contains("thread") {
            end(format_args!(
                "error: not enough memory or threads: {said}\nhint: recorded outcomes are safe; raise the memory limit \
                 (`ulimit -v unlimited`) or the thread limit (`ulimit -u`), or the container's, and run the same \
                 command again\n"
            ));
        }
        usual(panic);
    }));
}

/// Ends the process in the same way if a C library aborts it for lack of memory, as glibc does if it cannot
/// register a destructor of a thread. Only under a limit on the address space: elsewhere an abort has other
/// causes.
#[cfg(unix)]
pub(crate) fn watch_aborts() {
    extern "C" fn aborted(_: libc::c_int) {
        end(format_args!(
            "error: out of memory: a library ended the process under a limit on its address space\nhint: recorded \
             outcomes are safe; raise the memory limit (`ulimit -v unlimited`) and run the same command again\n"
        ));
    }
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: `limit` is valid for the call, and the handler only writes to standard error and exits, which
    // signal handlers may do.
    unsafe {
        if libc::getrlimit(libc::RLIMIT_AS, &mut limit) == 0 && limit.rlim_cur != libc::RLIM_INFINITY {
            libc::signal(libc::SIGABRT, aborted as *const () as libc::sighandler_t);
        }
    }
}

#[inline]
fn checked(block: *mut u8, size: usize) -> *mut u8 {
    if block.is_null() && size < ABSURD {
        exhausted(size);
    }
    block
}

/// Writes the message without allocating and ends the process at once, because destructors may allocate.
#[cold]
fn exhausted(size: usize) -> ! {
    end(format_args!(
        "error: out of memory: failed to allocate {size} bytes\nhint: recorded outcomes are safe; raise the memory \
         limit (`ulimit -v unlimited`, or the container's) and run the same command again\n"
    ))
}

fn end(message: std::fmt::Arguments<'_>) -> ! {
    let mut text = [0u8; 512];
    let mut rest = &mut text[..];
    // A message that does not fit is truncated.
    let _ = rest.write_fmt(message);
    let left = rest.len();
    let length = text.len() - left;
    #[cfg(unix)]
    // SAFETY: the buffer has at least `length` bytes, and `_exit` does not return.
    unsafe {
        libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), length);
        libc::_exit(Exit::Fault as libc::c_int)
    }
    #[cfg(not(unix))]
    {
        let _ = std::io::stderr().write_all(&text[..length]);
        std::process::exit(Exit::Fault as i32)
    }
}
