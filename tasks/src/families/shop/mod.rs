//! Shopping: WebShop (upstream `eval/webshop`).
//!
//! The shop is a world with state: the episode sends it actions as texts and reads what can be clicked then.

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
