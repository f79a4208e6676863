//! Token counts and durations.

use lumos_tasks::{DraftCounts, NanoDollars, Outcome, Telemetry};
use serde::Serialize;

/// Usage of the settled units of a configuration.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub(crate) struct TokenTotals {
    /// Number of units.
    pub(crate) units: u64,
    /// Number of prompt tokens.
    pub(crate) prompt_tokens: u64,
    /// Number of generated tokens.
    pub(crate) completion_tokens: u64,
    /// Values that depend on the schedule and the machine.
    pub(crate) telemetry: Times,
}

/// Duration of a unit in seconds, and cost. Never part of a comparison.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize)]
pub(crate) struct Times {
    /// Median.
    pub(crate) seconds_median: Option<f64>,
    /// 90th percentile.
    pub(crate) seconds_p90: Option<f64>,
    /// Tokens that lookup decoding drafted and accepted, if it was used.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) drafts: Option<DraftCounts>,
    /// Cost of the models in US dollars, if a price was set.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) cost: Option<f64>,
}

/// Accumulates usage.
#[derive(Debug, Default)]
pub(super) struct UsageSum {
    usage: TokenTotals,
    seconds: Vec<f64>,
    drafts: Option<DraftCounts>,
    cost: Option<NanoDollars>,
}

impl UsageSum {
    pub(super) fn add(&mut self, outcome: &Outcome, telemetry: &Telemetry) {
        let (read, written) = outcome.tokens();
        self.usage.units += 1;
        self.usage.prompt_tokens += read;
        self.usage.completion_tokens += written;
        self.seconds.push(telemetry.seconds);
        if let Some(drafts) = telemetry.drafts {
            *self.drafts.get_or_insert_default() += drafts;
        }
        if let Some(cost) = telemetry.cost {
            *self.cost.get_or_insert_default() += cost;
        }
    }

    pub(super) fn finish(mut self) -> TokenTotals {
        self.seconds.sort_by(f64::total_cmp);
        let telemetry = Times {
            seconds_median: rank(&self.seconds, 50),
            seconds_p90: rank(&self.seconds, 90),
            drafts: self.drafts,
            cost: self.cost.map(NanoDollars::dollars),
        };
        TokenTotals { telemetry, ..self.usage }
    }
}

/// Returns the given percentile (nearest rank) of sorted values.
fn rank(sorted: &[f64], percent: usize) -> Option<f64> {
    let position = (sorted.len() * percent).div_ceil(100).max(1) - 1;
    sorted.get(position).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_values_that_occur() {
        assert_eq!(rank(&[], 50), None);
        assert_eq!(rank(&[3.0], 90), Some(3.0));
        let ten: Vec<f64> = (1..=10).map(f64::from).collect();
        assert_eq!((rank(&ten, 50), rank(&ten, 90), rank(&ten, 100)), (Some(5.0), Some(9.0), Some(10.0)));
    }
}
