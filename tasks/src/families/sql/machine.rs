//! The state machine of a SQL episode: the planned loop or the try-again loop.

use crate::call::ToolReply;
use crate::configuration::Configuration;
use crate::episode::Want;
use crate::formulation::Formulation;
use crate::outcome::Step;

use super::planned::Planned;
use super::try_again::TryAgain;

/// One episode.
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
