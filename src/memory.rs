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
/// allocator takes three times as long. A failed allocation ends the process with a message and exit code 1.
///
/// ```no_run
/// #[global_allocator]
/// static ALLOCATOR: lumos_eval::Allocator = lumos_eval::Allocator;
/// # fn main() {}
/// ```
pub struct Allocator;

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

/// Ends the process in the same way if a thread cannot be started, or if a library panics because it got no memory under
/// a limit on the address space. tokio and the standard library panic in the first case; bindings of C libraries in the
/// second.
pub(crate) fn watch_panics() {
    // "fail to initialize" is an error of oniguruma.
    const NO_MEMORY: [&str; 4] = ["memory", "alloc", "null pointer", "fail to initialize"];
    let usual = std::panic::take_hook();
    let is_limited = is_limited();
    std::panic::set_hook(Box::new(move |panic| {
        let said = panic.payload_as_str().unwrap_or_default();
        if said.contains("spawn") && said.contains("thread") {
            end(format_args!(
                "error: not enough memory or threads: {said}\nhint: recorded outcomes are safe; raise the memory limit \
                 (`ulimit -v unlimited`) or the thread limit (`ulimit -u`), or the container's, and run the same \
                 command again\n"
            ));
        }
        if is_limited && NO_MEMORY.iter().any(|word| said.contains(word)) {
            end(format_args!(
                "error: out of memory: {said}\nhint: recorded outcomes are safe; raise the memory limit (`ulimit -v \
                 unlimited`) and run the same command again\n"
            ));
        }
        // `println!` panics if standard output is closed or its disk is full. Runs write their output in another way, and
        // continue.
        if let Some(why) = said.strip_prefix("failed printing to stdout: ") {
            if why.starts_with("Broken pipe") {
                end(format_args!(""));
            }
            end(format_args!("error: failed to write to standard output: {why}\n"));
        }
        usual(panic);
    }));
}

/// Whether the process has a limit on its address space.
fn is_limited() -> bool {
    #[cfg(unix)]
    {
        let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
        // SAFETY: `limit` is valid for the call.
        let failed = unsafe { libc::getrlimit(libc::RLIMIT_AS, &mut limit) } != 0;
        !failed && limit.rlim_cur != libc::RLIM_INFINITY
    }
    #[cfg(not(unix))]
    false
}

/// Ends the process in the same way if it is ended by a signal for lack of memory: glibc aborts if it cannot register a
/// destructor of a thread, and a stack that cannot grow is a segmentation fault. Only under a limit on the address
/// space: elsewhere these signals have other causes.
#[cfg(unix)]
pub(crate) fn watch_signals() {
    extern "C" fn ended(_: libc::c_int) {
        end(format_args!(
            "error: out of memory: the process cannot go on under the limit on its address space\nhint: recorded \
             outcomes are safe; raise the memory limit (`ulimit -v unlimited`) and run the same command again\n"
        ));
    }
    if !is_limited() {
        return;
    }
    // SAFETY: `action` is valid for the calls. The handler only writes to standard error and exits, which signal handlers
    // may do. It runs on the alternate stack that the standard library sets up for each thread, because the usual stack
    // may be full.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = ended as *const () as libc::sighandler_t;
        action.sa_flags = libc::SA_ONSTACK;
        for signal in [libc::SIGABRT, libc::SIGBUS, libc::SIGSEGV] {
            libc::sigaction(signal, &action, std::ptr::null_mut());
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
