//! Adds tasks, predictions and trajectories of changed items from the checkpoints.

use std::io;

use lumos_coordinator::{CheckpointError, CheckpointReader, Record};

use super::model::{Comparison, FlipTexts};
use crate::display::{prediction_text, task_text};

impl Comparison {
    /// Reads the texts of at most `most` items of each list of changed items of every pair, with their trajectories if
    /// asked for. `checkpoints` are those of the compared runs, in the order in which they were given.
    ///
    /// # Errors
    /// If a record cannot be read, or a checkpoint is missing.
    pub fn read_texts(
        &mut self,
        checkpoints: &[&CheckpointReader],
        most: usize,
        trajectories: bool,
    ) -> Result<(), CheckpointError> {
        for pair in &mut self.comparisons {
            let reader = |side: usize| {
                checkpoints.get(side).copied().ok_or_else(|| {
                    CheckpointError::of_io(
                        std::path::Path::new("checkpoint"),
                        &io::ErrorKind::NotFound.into(),
                    )
                })
            };
            let (a, b) = (reader(pair.sides.0)?, reader(pair.sides.1)?);
            let lists = [&mut pair.newly_wrong, &mut pair.newly_right, &mut pair.otherwise_different];
            let items = lists.into_iter().flat_map(|list| list.iter_mut().take(most));
            for flipped in items {
                let Some(item) = a.item(&pair.benchmark, flipped.item)? else { continue };
                // The latest records, which settled the units.
                let record_a = a.records_of(&flipped.unit_a)?.pop();
                let record_b = b.records_of(&flipped.unit_b)?.pop();
                let prediction = |record: &Option<Record>| {
                    record.as_ref().and_then(|record| prediction_text(&record.outcome))
                };
                let (prediction_a, prediction_b) = (prediction(&record_a), prediction(&record_b));
                let steps = |record: Option<Record>| record.map(|record| record.outcome.steps);
                flipped.texts = Some(FlipTexts {
                    task: task_text(&item.task).to_owned(),
                    gold: item.target.text().to_owned(),
                    prediction_a,
                    prediction_b,
                    trajectory_a: steps(record_a).filter(|_| trajectories),
                    trajectory_b: steps(record_b).filter(|_| trajectories),
                });
            }
        }
        Ok(())
    }
}
