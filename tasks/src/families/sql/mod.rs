//! Questions to databases (InterCode SQL), with two loops: the planned form in the style of Lumos, and the
//! benchmark's own try-again loop. The paper published no prompts or actions for this family; those of the
//! planned form are specific to lumos (`docs/intercode_sql.md`).

mod actions;
mod attribution;
pub mod parse;
mod planned;
mod prompts;
mod try_again;

pub(crate) use attribution::first_error;
pub use prompts::{DIALOGUE_LIMIT, hash as prompts_hash};

use crate::call::SqlReply;
use crate::configuration::Configuration;
use crate::episode::Started;
use crate::formulation::Formulation;

/// Maximum number of characters of a text that a chat model is shown (upstream `response_limit`).
const SHOWN_CHARACTERS: usize = 1000;

/// Starts the episode of a question in the form of the configuration.
pub(crate) fn start(question: &str, database: &str, configuration: &Configuration) -> Started {
    match configuration.formulation {
        Formulation::TryAgain => try_again::TryAgain::start(question, configuration),
        _ => planned::Planned::start(question, database, configuration),
    }
}

/// A statement's reply in the form that a model is shown: texts are truncated after a thousand characters,
/// results after fifty rows.
fn shown(reply: &SqlReply) -> String {
    match reply {
        SqlReply::Rows { rows, .. } => {
            let rows = rows.get(..SqlReply::SHOWN_ROWS.min(rows.len())).unwrap_or_default();
            format!("[{}]", rows.join(", "))
        }
        SqlReply::Nothing => "None".to_owned(),
        SqlReply::Error(message) => cut(message, SHOWN_CHARACTERS).to_owned(),
    }
}

/// The first characters of a text.
fn cut(text: &str, most: usize) -> &str {
    text.char_indices().nth(most).map_or(text, |(at, _)| text.get(..at).unwrap_or(text))
}
