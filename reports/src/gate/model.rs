//! Verdicts and checks of a gate.

use std::path::PathBuf;

use lumos_benchmarks::statistics::{ALPHA, Limits};
use serde::Serialize;

use super::scored::ScoredGroup;

/// Outcome of a check.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum GateVerdict {
    /// The rule is met.
    Pass,
    /// Too little evidence, or too few units, to decide.
    CannotTell,
    /// The rule is violated.
    Fail,
}

impl GateVerdict {
    /// Returns the words shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pass => "pass",
            Self::CannotTell => "cannot tell",
            Self::Fail => "fail",
        }
    }

    /// Returns the exit code of the process: 0, 5 or 100.
    pub fn code(self) -> u8 {
        match self {
            Self::Pass => 0,
            Self::CannotTell => 5,
            Self::Fail => 100,
        }
    }
}

/// One rule applied to one group.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct GateCheck {
    /// The rule: `non-inferiority exact_match`, `threshold f1`, `must-pass 17`.
    pub rule: String,
    /// The benchmark.
    pub benchmark: String,
    /// Formulation, behaviour, and the models if they vary.
    pub group: String,
    /// The decision.
    pub verdict: GateVerdict,
    /// The figures behind the decision, for people.
    pub reason: String,
    /// Number of items.
    pub items: u64,
    /// Candidate minus baseline, or the value that a threshold is compared with; a fraction or a count.
    pub difference: Option<f64>,
    /// Two-sided 95 % interval of the difference, or the one-sided 95 % limits of a threshold's value.
    pub interval: Option<Limits>,
    /// One-sided 95 % limit in the direction of a loss.
    pub limit: Option<f64>,
    /// Two-sided p value of the difference.
    pub p_value: Option<f64>,
    /// One-sided p value of the hypothesis that the loss is within the margin, adjusted for all groups (Holm).
    pub p_adjusted: Option<f64>,
    /// The allowed loss, or the threshold.
    pub margin: Option<f64>,
    /// Number of items that would decide with 80 % power.
    pub items_needed: Option<u64>,
}

/// All checks of a gate.
#[derive(Debug, Clone, PartialEq)]
pub struct GateReport {
    /// The candidate's name.
    pub run: String,
    /// The baseline's name.
    pub baseline: String,
    /// The folders of baseline and candidate, for `lumos compare`; `None` if the baseline is a file.
    pub folders: Option<[PathBuf; 2]>,
    /// The checks, by group and then by rule.
    pub checks: Vec<GateCheck>,
    /// What a reader must know.
    pub warnings: Vec<String>,
}

impl GateReport {
    /// Returns the verdict: fail if any check fails, otherwise cannot tell if any check cannot, otherwise pass.
    pub fn verdict(&self) -> GateVerdict {
        self.checks.iter().map(|check| check.verdict).max().unwrap_or(GateVerdict::CannotTell)
    }
}

impl GateCheck {
    pub(super) fn new(
        rule: String,
        group: &ScoredGroup,
        verdict: GateVerdict,
        reason: String,
        items: u64,
    ) -> Self {
        Self {
            rule,
            benchmark: group.head.benchmark.clone(),
            group: group.head.label.clone(),
            verdict,
            reason,
            items,
            difference: None,
            interval: None,
            limit: None,
            p_value: None,
            p_adjusted: None,
            margin: None,
            items_needed: None,
        }
    }

    /// Sets the adjusted p value; a small one is a failure.
    pub(super) fn fail_below(&mut self, p: f64) {
        self.p_adjusted = Some(p);
        if p < ALPHA && self.verdict != GateVerdict::Pass {
            self.verdict = GateVerdict::Fail;
            self.items_needed = None;
            let p = if p < 0.0001 { "p < 0.0001".to_owned() } else { format!("p = {p:.4}") };
            self.reason.push_str(&format!("; worse by more than the margin ({p} after Holm's correction)"));
        }
    }
}
