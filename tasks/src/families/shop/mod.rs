//! Shopping: WebShop (upstream `eval/webshop`).
//!
//! The shop is a stateful environment: the episode sends actions as text and reads the page with its
//! clickable elements.

mod call;
mod evidence;
mod execution;
mod exemplars;
mod machine;
mod parse;
mod prompts;

pub use call::{Purchase, ShopReply, ShopRequest};
pub use evidence::{End, ShopEvidence, ShopValue};
pub use exemplars::{BadExemplars, Exemplars};
pub(crate) use machine::Machine;
pub use prompts::hash as prompts_hash;
