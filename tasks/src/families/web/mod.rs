//! Web navigation (Mind2Web; upstream `eval/mind2web/run_eval.py` of Lumos).
//!
//! The planner is teacher-forced: independent of its reply, its next prompt states that the *gold* action was
//! executed ([`sentence`]). The grounder's action names a page by a variable and an element by a query; the
//! candidates of that page are ranked by the query, and the best one is the prediction. If the pages' backend
//! is a browser, the step's prediction is then executed there ([`PageAction`]), which does not influence the
//! rest of the episode.

mod action;
mod element;
mod family;
mod page_action;
pub(super) mod prompts;
#[cfg(test)]
mod tests;

pub use action::{ActionName, ActionRefusal, ParsedWebAction};
pub use element::{CandidateElement, CandidateScope, WebStep};
pub(crate) use family::start;
pub use family::{Chosen, WebEvidence};
pub use page_action::{Obstacle, PageAction, PageExecution, WebResult};
pub use prompts::{NoArrow, hash as prompts_hash, option_hint, sentence};
