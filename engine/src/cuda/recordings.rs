//! Steps of decoding that are started with one call: a pass has hundreds of launches, and with few sequences the host takes
//! longer to start them than the device to compute them.
//!
//! The launches of a step depend on its [shape](Step::shape) only, because what they read lies at fixed addresses. A shape that
//! occurs a second time is recorded ([`Accelerator::record`]) and replayed from then on: one recording for each number of
//! sequences and of parts of the longest context.

use std::collections::HashMap;

use super::accelerator::{Accelerator, DeviceError};
use super::step::Step;

/// Most shapes that are kept; beyond it all are forgotten.
const MOST: usize = 64;

/// Recordings by shape; `None` for shapes that occurred once.
pub(super) struct Recordings<A: Accelerator> {
    known: HashMap<Step, Option<A::Recording>>,
    /// The device cannot record.
    is_off: bool,
}

impl<A: Accelerator> Recordings<A> {
    pub(super) fn new() -> Self {
        Self { known: HashMap::new(), is_off: false }
    }

    /// Forgets all, because a buffer that they use is replaced.
    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    /// Starts the launches of a step: `forward`, or what was recorded of it.
    pub(super) fn run(
        &mut self,
        device: &A,
        step: &Step,
        mut forward: impl FnMut() -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        let Some(shape) = step.shape().filter(|_| !self.is_off) else { return forward() };
        match self.known.get_mut(&shape) {
            Some(Some(recording)) => device.replay(recording),
            Some(occurred) => match device.record(&mut forward)? {
                Some(recording) => device.replay(occurred.insert(recording)),
                None => {
                    self.is_off = true;
                    self.clear();
                    forward()
                }
            },
            None => {
                if self.known.len() >= MOST {
                    self.clear();
                }
                self.known.insert(shape, None);
                forward()
            }
        }
    }
}
