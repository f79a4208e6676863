//! Acting on web pages (Mind2Web; upstream `eval/mind2web/run_eval.py` of Lumos).
//!
//! The planner is teacher forced: whatever it writes, its next prompt says that the *gold* action was done
//! ([`sentence`]). The grounder's action names a page by a variable and an element by a query; the elements of that page
//! are ranked by the query, and the best one is the prediction. Where the pages' backend is a browser, the step's prediction
//! is then carried out there ([`Attempt`]), which changes nothing of what follows.

mod action;
mod carried;
mod element;
mod evidence;
mod machine;
mod prompts;
mod ranking;
mod sentence;
#[cfg(test)]
mod tests;
mod variables;

pub use action::{ActionName, Parsed, Refusal};
pub use carried::{Attempt, Carried, Executed, Obstacle};
pub use element::{CandidateScope, Element, WebStep};
pub use evidence::{Chosen, WebEvidence};
pub(crate) use machine::{Machine, WebTask};
pub use prompts::{hash as prompts_hash, option_hint};
pub use sentence::{NoArrow, sentence};
