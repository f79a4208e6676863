//! What a run needs on the server is put there again when it is deleted: streams, buckets, consumers, the run's notice
//! and what its units share. Units and results that went with it are found missing by [`super::reconcile`].

use std::sync::{Arc, PoisonError};
use std::time::Instant;

use super::announce::Announced;
use super::{Around, FleetError};

/// Looks after what a run needs on the server.
pub(super) struct Restorer {
    announced: Arc<Announced>,
    /// The run's lanes.
    lanes: Vec<String>,
    /// What was said last about what cannot be restored.
    said: Option<String>,
}

impl Restorer {
    pub(super) fn new(announced: Arc<Announced>, lanes: Vec<String>) -> Self {
        Self { announced, lanes, said: None }
    }

    /// Creates again what is missing; whether anything was.
    pub(super) async fn restore(&mut self, around: &Around) -> bool {
        let restored = match self.restore_all(around).await {
            Ok(restored) => {
                self.said = None;
                restored
            }
            Err(FleetError::Server(error)) if super::error::Passing::passes(&error) => return false,
            Err(error) => {
                let said = error.to_string();
                if self.said.as_ref() != Some(&said) {
                    tracing::warn!("failed to recreate what the run needs on the NATS server: {said}");
                    self.said = Some(said);
                }
                return false;
            }
        };
        if restored.is_empty() {
            return false;
        }
        // Workers could not show themselves meanwhile.
        around.crew.lock().unwrap_or_else(PoisonError::into_inner).forgive(Instant::now());
        tracing::warn!(
            "recreated what was deleted from the NATS server: {}; lost units are published again",
            restored.join(", ")
        );
        true
    }

    async fn restore_all(&self, around: &Around) -> Result<Vec<String>, FleetError> {
        let mut restored: Vec<String> = around.server.restore(around.run.as_str(), &self.lanes).await?;
        let draining = around.drain.is_cancelled();
        restored.extend(self.announced.restore(draining).await?.into_iter().map(str::to_owned));
        Ok(restored)
    }

    /// The run's lanes.
    pub(super) fn lanes(&self) -> &[String] {
        &self.lanes
    }
}
