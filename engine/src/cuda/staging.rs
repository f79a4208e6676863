//! Page-locked memory through which a program's memory reaches a GPU.
//!
//! The driver copies page-locked memory while the program goes on; for other memory its documentation leaves open when
//! it is read. [`Staging`] copies bytes into one of two page-locked buffers and returns; a buffer is written again after
//! the GPU has passed the event behind its last copy.
#![allow(unsafe_code)] // foreign functions that take addresses

use std::sync::Arc;

use cudarc::driver::{CudaContext, CudaEvent, CudaStream, result, sys};

use super::accelerator::DeviceError;
use super::driver::finished;
use crate::device::lost_gpu;

/// Size of a buffer in bytes.
const SLOT: usize = 8 << 20;

/// Two page-locked buffers, used in turns.
pub(super) struct Staging {
    context: Arc<CudaContext>,
    slots: [Slot; 2],
    next: usize,
}

struct Slot {
    memory: *mut u8,
    /// Recorded behind the last copy.
    copied: CudaEvent,
}

// SAFETY: the memory belongs to the context, not to a thread, and only this value uses it.
unsafe impl Send for Staging {}

impl Staging {
    pub(super) fn new(context: &Arc<CudaContext>) -> Result<Self, DeviceError> {
        context.bind_to_thread()?;
        let slot = || -> Result<Slot, DeviceError> {
            let copied = context.new_event(None)?;
            // SAFETY: a failed allocation returns an error; `drop` frees the memory.
            let memory = unsafe { result::malloc_host(SLOT, sys::CU_MEMHOSTALLOC_WRITECOMBINED) }?;
            Ok(Slot { memory: memory.cast(), copied })
        };
        Ok(Self { context: context.clone(), slots: [slot()?, slot()?], next: 0 })
    }

    /// Copies to an address on the device, in the stream's order. `bytes` may be reused when the call returns.
    pub(super) fn upload(
        &mut self,
        to: sys::CUdeviceptr,
        bytes: &[u8],
        stream: &CudaStream,
    ) -> Result<(), DeviceError> {
        for (index, part) in bytes.chunks(SLOT).enumerate() {
            let slot = &self.slots[self.next];
            self.next = (self.next + 1) % self.slots.len();
            // SAFETY: the event is alive.
            finished(|| unsafe { result::event::query(slot.copied.cu_event()) })?;
            // SAFETY: the buffer has `SLOT` bytes, and the device has read what it held before; the caller owns the
            // destination.
            unsafe {
                std::ptr::copy_nonoverlapping(part.as_ptr(), slot.memory, part.len());
                let staged = std::slice::from_raw_parts(slot.memory, part.len());
                result::memcpy_htod_async(to + (index * SLOT) as u64, staged, stream.cu_stream())?;
            }
            slot.copied.record(stream)?;
        }
        Ok(())
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        // The driver would wait for a kernel that does not end.
        if lost_gpu().is_some() || self.context.bind_to_thread().is_err() {
            return;
        }
        for slot in &self.slots {
            // SAFETY: allocated by `new`; the driver waits for copies from it.
            let _ = unsafe { result::free_host(slot.memory.cast()) };
        }
    }
}
