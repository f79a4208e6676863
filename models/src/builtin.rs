//! The small trained models in the binary (`builtin:tiny`): one per domain, which serves as planner and grounder.
//!
//! A run picks the pair by the family of each benchmark. The name is the same for all pairs; the identity of a model, a hash of its
//! files, distinguishes them, and workers load the files of the identity that a run was planned with. Created by `training/tiny`
//! (mathematics) and `training/agents` (the others).

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use lumos_engine::{ModelFiles, ModelSource};
use lumos_tasks::{ContentHash, Formulation, Role};

use crate::files::{ModelFile, identity};

/// Domain that a built-in pair was trained for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum BuiltinDomain {
    /// Mathematics word problems; also used where no pair was trained for the agent.
    #[default]
    Maths,
    /// Questions over pages, including the questions to the QA tool's model.
    Qa,
    /// Questions to databases.
    Sql,
    /// The shop and web pages.
    Web,
}

/// The models of a pair.
struct Pair {
    domain: BuiltinDomain,
    planner_iterative: &'static ModelFiles,
    planner_onetime: &'static ModelFiles,
    grounder: &'static ModelFiles,
    /// The model that answers the QA tool's questions.
    qa: &'static ModelFiles,
    about: BuiltinPair,
}

/// What a built-in pair is for, for lists.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BuiltinPair {
    /// The domain.
    pub domain: BuiltinDomain,
    /// The benchmarks for which it is picked.
    pub benchmarks: &'static str,
    /// The formulations that it was trained for.
    pub formulations: &'static [Formulation],
    /// Measured accuracy on held-out generated tasks, from the README of its training.
    pub accuracy: &'static str,
}

macro_rules! embedded {
    ($folder:literal) => {
        ModelFiles {
            config: include_bytes!(concat!("../assets/tiny/", $folder, "/config.json")),
            tokenizer: include_bytes!(concat!("../assets/tiny/", $folder, "/tokenizer.json")),
            weights: include_bytes!(concat!("../assets/tiny/", $folder, "/model.safetensors")),
        }
    };
    ($folder:literal, tokenizer_onetime of $model:ident) => {
        ModelFiles {
            config: $model.config,
            tokenizer: include_bytes!(concat!("../assets/tiny/", $folder, "/tokenizer-onetime.json")),
            weights: $model.weights,
        }
    };
}

/// Planner in the iterative formulation and grounder in one: their prompts differ.
static MATHS: ModelFiles = embedded!("maths");
/// The first prompts of both formulations are equal. The planner's one-time tokenizer reads its prompt's beginning as another token.
static MATHS_ONETIME: ModelFiles = embedded!("maths", tokenizer_onetime of MATHS);
/// Planner in the iterative formulation, grounder, and reader of the QA tool in one.
static QA: ModelFiles = embedded!("qa");
static QA_ONETIME: ModelFiles = embedded!("qa", tokenizer_onetime of QA);
/// Planner and grounder in one.
static SQL: ModelFiles = embedded!("sql");
/// Planner and grounder in one.
static WEB: ModelFiles = embedded!("web");

const BOTH: &[Formulation] = &[Formulation::Iterative, Formulation::OneTime];

static PAIRS: [Pair; 4] = [
    Pair {
        domain: BuiltinDomain::Maths,
        planner_iterative: &MATHS,
        planner_onetime: &MATHS_ONETIME,
        grounder: &MATHS,
        // Not trained for questions: a run works without another model, but the answers are meaningless.
        qa: &MATHS,
        about: BuiltinPair {
            domain: BuiltinDomain::Maths,
            benchmarks: "gsm8k, svamp",
            formulations: BOTH,
            accuracy: "86 % iterative, 86 % onetime",
        },
    },
    Pair {
        domain: BuiltinDomain::Qa,
        planner_iterative: &QA,
        planner_onetime: &QA_ONETIME,
        grounder: &QA,
        qa: &QA,
        about: BuiltinPair {
            domain: BuiltinDomain::Qa,
            benchmarks: "hotpotqa, strategyqa",
            formulations: BOTH,
            accuracy: "HotpotQA 83 % iterative, 69 % onetime",
        },
    },
    Pair {
        domain: BuiltinDomain::Sql,
        planner_iterative: &SQL,
        planner_onetime: &SQL,
        grounder: &SQL,
        qa: &SQL,
        about: BuiltinPair {
            domain: BuiltinDomain::Sql,
            benchmarks: "intercode_sql",
            formulations: &[Formulation::Iterative],
            accuracy: "85 %",
        },
    },
    Pair {
        domain: BuiltinDomain::Web,
        planner_iterative: &WEB,
        planner_onetime: &WEB,
        grounder: &WEB,
        qa: &WEB,
        about: BuiltinPair {
            domain: BuiltinDomain::Web,
            benchmarks: "webshop, mind2web",
            formulations: &[Formulation::Iterative],
            accuracy: "reward 91 % (shop), 76 % of the steps (web pages)",
        },
    },
];

impl Pair {
    /// Returns the files that serve a role. Like the published checkpoints, a pair does not include an
    /// answerer or a judge.
    fn files(&self, role: Role, formulation: Formulation) -> Option<&'static ModelFiles> {
        match (role, formulation) {
            (Role::Answerer | Role::Judge, _) => None,
            (Role::Grounder, _) => Some(self.grounder),
            (Role::Planner, Formulation::OneTime) => Some(self.planner_onetime),
            (Role::Planner, _) => Some(self.planner_iterative),
            (Role::Qa, _) => Some(self.qa),
        }
    }

    fn all(&self) -> [&'static ModelFiles; 4] {
        [self.planner_iterative, self.planner_onetime, self.grounder, self.qa]
    }
}

/// Returns the pairs, with mathematics first.
pub fn builtin_pairs() -> impl Iterator<Item = BuiltinPair> {
    PAIRS.iter().map(|pair| pair.about)
}

/// Returns the files of a domain's pair that serve a role under a formulation, if it has such a model.
pub(crate) fn builtin_files(
    domain: BuiltinDomain,
    role: Role,
    formulation: Formulation,
) -> Option<&'static ModelFiles> {
    PAIRS.iter().find(|pair| pair.domain == domain)?.files(role, formulation)
}

/// Returns the embedded model of a domain's pair that serves a role under a formulation, if there is one.
pub fn builtin_source(domain: BuiltinDomain, role: Role, formulation: Formulation) -> Option<ModelSource> {
    builtin_files(domain, role, formulation).map(|files| ModelSource::Memory(*files))
}

/// Returns the embedded model with an identity; `None` if this program contains other models.
pub(crate) fn builtin_with(content: &ContentHash) -> Option<&'static ModelFiles> {
    PAIRS.iter().flat_map(Pair::all).find(|files| identity(&builtin_listed(files)) == *content)
}

/// Size of the embedded files of a domain's pair in bytes. Files of several models count once.
pub fn builtin_bytes(domain: BuiltinDomain) -> u64 {
    let mut files: Vec<&'static [u8]> = Vec::new();
    for model in PAIRS.iter().filter(|pair| pair.domain == domain).flat_map(Pair::all) {
        for file in [model.config, model.tokenizer, model.weights] {
            if !files.iter().any(|known| std::ptr::eq(*known, file)) {
                files.push(file);
            }
        }
    }
    files.iter().map(|file| file.len() as u64).sum()
}

/// Returns the embedded files for the model's identity.
pub(crate) fn builtin_listed(files: &ModelFiles) -> Vec<ModelFile> {
    let listed = |name: &str, content: &'static [u8]| ModelFile {
        name: name.to_owned(),
        sha256: hash_of(content),
        bytes: content.len() as u64,
    };
    vec![
        listed("config.json", files.config),
        listed("model.safetensors", files.weights),
        listed("tokenizer.json", files.tokenizer),
    ]
}

/// Returns the SHA-256 of an embedded file, which is computed when it is first needed: a run needs few of the models.
fn hash_of(content: &'static [u8]) -> ContentHash {
    static KNOWN: Mutex<BTreeMap<(usize, usize), ContentHash>> = Mutex::new(BTreeMap::new());
    let mut known = KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    known
        .entry((content.as_ptr().addr(), content.len()))
        .or_insert_with(|| ContentHash::of_bytes(content))
        .clone()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_model_is_found_by_its_identity() {
        for pair in &PAIRS {
            for role in [Role::Planner, Role::Grounder, Role::Qa] {
                for formulation in BOTH {
                    let files = builtin_files(pair.domain, role, *formulation).unwrap();
                    let found = builtin_with(&identity(&builtin_listed(files))).unwrap();
                    assert_eq!((found.weights, found.tokenizer), (files.weights, files.tokenizer));
                }
            }
            assert!(builtin_files(pair.domain, Role::Judge, Formulation::Iterative).is_none());
        }
        assert!(builtin_with(&ContentHash::of_bytes(b"another")).is_none());
    }

    #[test]
    fn pairs_load_and_stay_small() {
        for pair in &PAIRS {
            assert!(builtin_bytes(pair.domain) < 10_000_000, "{:?}", pair.domain);
            for files in pair.all() {
                lumos_engine::Tokenizer::of(&ModelSource::Memory(*files)).unwrap();
            }
        }
    }
}
