//! The names of the unknowns of one query, in alphabetical order.

use std::collections::BTreeSet;

use super::error::MathsError;
use super::lexer::Token;
use super::limits::{Meter, within};
use super::monomial::MOST_UNKNOWNS;

/// Position of an unknown in the alphabetical order of a query's unknowns.
pub(crate) type Variable = usize;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Variables {
    names: Vec<String>,
}

impl Variables {
    /// The unknowns that occur in any of the token sequences.
    pub(crate) fn of<'a>(
        sequences: impl IntoIterator<Item = &'a [Token]>,
        meter: &Meter,
    ) -> Result<Self, MathsError> {
        let names: BTreeSet<&String> = sequences
            .into_iter()
            .flatten()
            .filter_map(|token| match token {
                Token::Variable(name) => Some(name),
                _ => None,
            })
            .collect();
        within("unknowns", names.len(), meter.limits().unknowns.min(MOST_UNKNOWNS))?;
        Ok(Self { names: names.into_iter().cloned().collect() })
    }

    pub(crate) fn len(&self) -> usize {
        self.names.len()
    }

    pub(crate) fn find(&self, name: &str) -> Option<Variable> {
        self.names.iter().position(|known| known == name)
    }

    pub(crate) fn name(&self, variable: Variable) -> &str {
        self.names.get(variable).map_or("?", String::as_str)
    }
}
