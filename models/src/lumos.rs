//! Short names of the published Lumos pairs: `lumos:maths` is the planner or the grounder trained for the
//! run's formulation (<https://huggingface.co/ai2lumos>, listed in the README of allenai/lumos).

use std::fmt;
use std::str::FromStr;

use lumos_tasks::{Formulation, Role};

use crate::hub::HubName;

/// Owner of the models on the hub.
const OWNER: &str = "ai2lumos";
/// Suffix of the larger models, in short names and on the hub.
const LARGE: (&str, &str) = ("-13b", "-13B");

/// A published pair, with the formulations of its 7B models and of its 13B models.
struct Published {
    pair: &'static str,
    usual: &'static [Formulation],
    large: &'static [Formulation],
}

const PUBLISHED: [Published; 4] = [
    Published {
        pair: "maths",
        usual: &[Formulation::Iterative, Formulation::OneTime],
        large: &[Formulation::OneTime],
    },
    Published {
        pair: "complex_qa",
        usual: &[Formulation::Iterative, Formulation::OneTime],
        large: &[Formulation::Iterative],
    },
    Published { pair: "web_agent", usual: &[Formulation::Iterative], large: &[Formulation::Iterative] },
    Published { pair: "unified", usual: &[Formulation::Iterative], large: &[Formulation::Iterative] },
];

/// A published pair: `maths`, `complex_qa`, `web_agent`, `unified`, with `-13b` for the larger one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LumosName {
    /// Index into [`PUBLISHED`].
    index: usize,
    large: bool,
}

impl LumosName {
    /// Returns the hub model that serves a role under a formulation. The error is a message.
    ///
    /// # Errors
    /// If no model was published for this role and formulation.
    pub fn resolve(self, role: Role, formulation: Formulation) -> Result<HubName, String> {
        let module = match role {
            Role::Planner => "plan",
            Role::Grounder => "ground",
            Role::Answerer | Role::Qa | Role::Judge => {
                return Err(format!("{self} has a planner and a grounder, but no {role}"));
            }
        };
        let published = self.formulations();
        if !published.contains(&formulation) {
            let known: Vec<&str> = published.iter().map(|formulation| formulation.name()).collect();
            return Err(format!(
                "{self} was published for {}, not for {}; hint: pass --formulation {}, or another model",
                known.join(" and "),
                formulation.name(),
                known.join(","),
            ));
        }
        let size = if self.large { LARGE.1 } else { "" };
        let pair = PUBLISHED[self.index].pair;
        format!("{OWNER}/lumos_{pair}_{module}_{}{size}", formulation.name())
            .parse()
            .map_err(|()| format!("{self} does not map to a valid hub id"))
    }

    /// Returns every published pair.
    pub fn all() -> Vec<Self> {
        let sizes = |index| [false, true].map(|large| Self { index, large });
        (0..PUBLISHED.len()).flat_map(sizes).collect()
    }

    /// Returns the formulations that the pair was published for.
    pub fn formulations(self) -> &'static [Formulation] {
        let published = &PUBLISHED[self.index];
        if self.large { published.large } else { published.usual }
    }
}

impl FromStr for LumosName {
    type Err = String;

    /// Parses the part after `lumos:`.
    fn from_str(text: &str) -> Result<Self, String> {
        let (pair, large) = text.strip_suffix(LARGE.0).map_or((text, false), |pair| (pair, true));
        let index = PUBLISHED.iter().position(|published| published.pair == pair);
        let index = index.ok_or_else(|| {
            let known: Vec<&str> = PUBLISHED.iter().map(|published| published.pair).collect();
            format!("unknown pair: expected one of {}, with -13b for the larger models", known.join(", "))
        })?;
        Ok(Self { index, large })
    }
}

impl fmt::Display for LumosName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "lumos:{}{}", PUBLISHED[self.index].pair, if self.large { LARGE.0 } else { "" })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_have_the_ids_that_were_published() {
        let id = |text: &str, role, formulation| {
            let name: LumosName = text.parse().unwrap();
            assert_eq!(name.to_string(), format!("lumos:{text}"));
            name.resolve(role, formulation).map(|name| name.id().to_owned())
        };
        let (iterative, onetime) = (Formulation::Iterative, Formulation::OneTime);
        for (text, role, formulation, published) in [
            ("maths", Role::Planner, iterative, "ai2lumos/lumos_maths_plan_iterative"),
            ("maths", Role::Grounder, onetime, "ai2lumos/lumos_maths_ground_onetime"),
            ("maths-13b", Role::Planner, onetime, "ai2lumos/lumos_maths_plan_onetime-13B"),
            ("complex_qa", Role::Grounder, onetime, "ai2lumos/lumos_complex_qa_ground_onetime"),
            ("web_agent-13b", Role::Planner, iterative, "ai2lumos/lumos_web_agent_plan_iterative-13B"),
            ("unified", Role::Grounder, iterative, "ai2lumos/lumos_unified_ground_iterative"),
        ] {
            assert_eq!(id(text, role, formulation).as_deref(), Ok(published));
        }
        let why = id("maths-13b", Role::Planner, iterative).unwrap_err();
        assert!(why.contains("published for onetime, not for iterative"), "{why}");
        assert!(id("web_agent", Role::Planner, onetime).is_err());
        assert!(id("maths", Role::Judge, iterative).unwrap_err().contains("no judge"));
        assert!("physics".parse::<LumosName>().unwrap_err().contains("complex_qa"));
    }
}
