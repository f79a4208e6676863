//! The state of a run in progress, for live pages and metrics.
//!
//! ```text
//! <run>/checkpoint   → LiveFolder ─┐
//! <run>/status.json  → StatusFile ─┼→ LiveRun → delta       → events of a page
//! notices of a queue ──────────────┘          → openmetrics → Prometheus
//! ```
//!
//! [`LiveFolder`] follows the checkpoint, also while another process writes it. A coordinator's status and the notices
//! of workers add what only they know: rates, units in progress, devices and heartbeats. They come from a queue, or
//! from the file `status.json` that a run without a queue writes. Everything in a [`LiveRun`] is bounded and safe to
//! display, whatever other machines sent.

mod folder;
mod model;
mod notices;
mod openmetrics;
mod status_file;
mod sums;

pub use {
    folder::{LiveError, LiveFolder},
    model::{
        LiveConfiguration, LiveFault, LiveRun, LiveScore, LiveState, LiveUnit, LiveWorker, QueueDepth, delta,
    },
    notices::{Heartbeats, SILENT_MS},
    openmetrics::{CONTENT_TYPE, openmetrics},
    status_file::StatusFile,
};
