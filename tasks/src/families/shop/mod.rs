//! Shopping: WebShop (upstream `eval/webshop`).
//!
//! The shop is a stateful environment: the episode sends actions as text and reads the page with its
//! clickable elements.

mod attribution;
mod execution;
mod exemplars;
mod family;
mod prompts;

pub(crate) use attribution::first_error;
pub use execution::{Purchase, ShopReply, ShopRequest, ShopValue};
pub use exemplars::{BadExemplars, Exemplars};
pub(crate) use family::start;
pub use family::{End, ShopEvidence};
pub use prompts::hash as prompts_hash;
