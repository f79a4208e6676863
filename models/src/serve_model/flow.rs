//! A streamed response: the chunks of all choices as they are generated, then the usage, then the end marker.

use std::collections::VecDeque;

use futures::stream::{self, BoxStream, SelectAll, StreamExt};
use lumos_engine::{GenerateError, GenerationStream, StreamEvent, TokenUsage};
use serde_json::Value;
use tokio::sync::OwnedSemaphorePermit;

use super::error::ApiError;
use super::reply::{Heading, sum};

/// Marks the end of a complete stream.
const DONE: &str = "[DONE]";

/// An event of one of the choices.
type Event = (usize, Result<StreamEvent, GenerateError>);

/// A streamed response. Dropping it cancels unfinished sequences.
pub(super) struct Flow {
    heading: Heading,
    events: SelectAll<BoxStream<'static, Event>>,
    pending: VecDeque<String>,
    used: TokenUsage,
    over: bool,
    /// Slots of its sequences.
    _places: OwnedSemaphorePermit,
}

impl Flow {
    pub(super) fn new(
        heading: Heading,
        generations: Vec<GenerationStream>,
        places: OwnedSemaphorePermit,
    ) -> Self {
        let openings = (0..generations.len()).filter_map(|index| heading.opening(index));
        let pending = openings.map(|piece| piece.to_string()).collect();
        let events = generations.into_iter().enumerate().map(|(index, generation)| {
            let next = move |mut generation: GenerationStream| async move {
                generation.next().await.map(|event| ((index, event), generation))
            };
            stream::unfold(generation, next).boxed()
        });
        let events = stream::select_all(events);
        Self { heading, events, pending, used: TokenUsage::default(), over: false, _places: places }
    }

    /// Returns the data of the next server-sent event; `None` after the last.
    pub(super) async fn next(&mut self) -> Option<String> {
        loop {
            if let Some(piece) = self.pending.pop_front() {
                return Some(piece);
            }
            if self.over {
                return None;
            }
            match self.events.next().await {
                Some((index, Ok(event))) => self.take(index, event),
                Some((_, Err(error))) => {
                    // Sent instead of the end marker, so that clients detect the incomplete response.
                    self.put(&ApiError::from(error).body());
                    self.events.clear();
                    self.over = true;
                }
                None => {
                    if self.heading.include_usage {
                        self.put(&self.heading.used(self.used));
                    }
                    self.pending.push_back(DONE.to_owned());
                    self.over = true;
                }
            }
        }
    }

    fn take(&mut self, index: usize, event: StreamEvent) {
        match event {
            StreamEvent::Delta(delta) if delta.text.is_empty() => {}
            StreamEvent::Delta(delta) => self.put(&self.heading.delta(index, &delta.text)),
            StreamEvent::Done(generation) => {
                self.used = sum(self.used, generation.usage);
                self.put(&self.heading.end(index, generation.finish));
            }
        }
    }

    fn put(&mut self, piece: &Value) {
        self.pending.push_back(piece.to_string());
    }
}
