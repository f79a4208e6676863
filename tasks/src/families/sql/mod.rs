//! Questions to databases (InterCode SQL), with two loops: the planned form in the style of Lumos, and the
//! benchmark's own try-again loop. The paper published no prompts or actions for this family; those of the
//! planned form are specific to lumos (`docs/intercode_sql.md`).

mod actions;
pub mod parse;
mod planned;
mod prompts;
mod try_again;

pub use actions::{SqlAction, parse_action, split_actions};
pub use prompts::{DIALOGUE_LIMIT, MAX_REPLY_TOKENS, NO_CODE, hash as prompts_hash};

use self::planned::Planned;
use self::try_again::TryAgain;
use crate::call::{SqlReply, ToolReply};
use crate::configuration::Configuration;
use crate::episode::Want;
use crate::formulation::Formulation;
use crate::outcome::Step;

/// Maximum number of characters of a text that a chat model is shown (upstream `response_limit`).
const SHOWN_CHARACTERS: usize = 1000;

/// The state machine of one episode: the planned loop or the try-again loop.
#[derive(Debug)]
pub(crate) enum Machine {
    Planned(Planned),
    TryAgain(TryAgain),
}

impl Machine {
    pub(crate) fn start(question: &str, database: &str, configuration: &Configuration) -> (Self, Want) {
        match configuration.formulation {
            Formulation::TryAgain => {
                let (machine, want) = TryAgain::start(question, configuration);
                (Self::TryAgain(machine), want)
            }
            _ => {
                let (machine, want) = Planned::start(question, database, configuration);
                (Self::Planned(machine), want)
            }
        }
    }

    pub(crate) fn turn(&self) -> u32 {
        match self {
            Self::Planned(machine) => machine.turn(),
            Self::TryAgain(machine) => machine.turn(),
        }
    }

    /// Processes a model's reply; `None` if none was requested.
    pub(crate) fn completed(&mut self, reply: &str, steps: &mut Vec<Step>) -> Option<Want> {
        match self {
            Self::Planned(machine) => machine.completed(reply, steps),
            Self::TryAgain(_) => None,
        }
    }

    /// Processes a tool's reply; `None` if it does not match the request.
    pub(crate) fn called(&mut self, reply: ToolReply, steps: &mut Vec<Step>) -> Option<Want> {
        match self {
            Self::Planned(machine) => machine.called(reply, steps),
            Self::TryAgain(machine) => machine.called(reply),
        }
    }
}

/// A statement's reply in the form that a model is shown: texts are truncated after a thousand characters,
/// results after fifty rows.
pub fn shown(reply: &SqlReply) -> String {
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
