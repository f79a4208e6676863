//! Lossless lookup decoding: a sequence's own text provides drafts of its next tokens, and one pass of the model
//! verifies a whole draft.
//!
//! ```text
//! known tokens   … 7 4 9 2 6 … 7 4 9           the last tokens, 7 4 9, occurred before
//! draft                              2 6 …     what followed them (lookup)
//! pass                             9 2 6 …     one prediction per row, equal to those of single steps
//! chosen                             2 5       as usual, up to the first that differs from the draft (verify)
//! ```
//!
//! A draft decides how many passes are needed, never which tokens are chosen: a row's logits do not depend on the
//! number of rows of a pass, and a token's random number depends only on its index. The scheduler adds the drafts to a
//! step and removes rejected positions from the KV cache.
//!
//! [`Speculation`] is the setting, [`DraftPolicy`] selects how many tokens are drafted, and [`replay`] measures the
//! drafts of recorded replies without a model.

mod lookup;
mod mode;
mod policy;

pub use lookup::replay;
pub(crate) use lookup::{draft, verify};
pub use mode::{DraftUsage, Speculation};
pub(crate) use policy::{DraftPolicy, LONGEST_DRAFT};
