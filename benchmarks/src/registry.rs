//! Registry of benchmarks: those of this crate, and those that a program adds.

use std::sync::OnceLock;

use thiserror::Error;

use crate::benchmark::Benchmark;
use crate::gsm8k::Gsm8k;
use crate::hotpotqa::HotpotQa;
use crate::intercode_sql::IntercodeSql;
use crate::mind2web::Mind2Web;
use crate::strategyqa::StrategyQa;
use crate::svamp::Svamp;
use crate::webshop::WebShop;

/// One entry per benchmark of this crate, in the order of reports.
static BUILT_IN: &[&dyn Benchmark] =
    &[&Gsm8k, &Svamp, &HotpotQa, &StrategyQa, &Mind2Web, &WebShop, &IntercodeSql];

/// The benchmarks of this crate, and those that the program adds.
static WITH_ADDED: OnceLock<Vec<&'static dyn Benchmark>> = OnceLock::new();

/// Adds benchmarks to those that [`all`], [`find`] and [`get`] return in this process. A program calls it at most once,
/// before it uses them; `lumos_eval::Program` does.
///
/// # Errors
/// If benchmarks were added before, or if two have the same name.
pub fn register(benchmarks: &[&'static dyn Benchmark]) -> Result<(), RegisterError> {
    let mut all = BUILT_IN.to_vec();
    for benchmark in benchmarks {
        let name = benchmark.name();
        if all.iter().any(|other| other.name() == name) {
            return Err(RegisterError::Repeated(name));
        }
        all.push(*benchmark);
    }
    WITH_ADDED.set(all).map_err(|_| RegisterError::Again)
}

/// Error of [`register`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum RegisterError {
    /// Two benchmarks have this name.
    #[error("benchmark `{0}` exists already: choose another name")]
    Repeated(&'static str),
    /// Benchmarks were added before.
    #[error("benchmarks were added before: add all of them in one call")]
    Again,
}

/// Returns all benchmarks, in the order of reports.
pub fn all() -> &'static [&'static dyn Benchmark] {
    WITH_ADDED.get().map_or(BUILT_IN, Vec::as_slice)
}

/// Finds a benchmark by name.
pub fn find(name: &str) -> Option<&'static dyn Benchmark> {
    all().iter().copied().find(|benchmark| benchmark.name() == name)
}

/// Finds a benchmark by name, or returns an error that lists the known names.
///
/// # Errors
/// If there is no benchmark with that name.
pub fn get(name: &str) -> Result<&'static dyn Benchmark, UnknownBenchmark> {
    find(name).ok_or_else(|| UnknownBenchmark {
        name: name.to_owned(),
        known: all().iter().map(|benchmark| benchmark.name()).collect::<Vec<_>>().join(", "),
    })
}

/// Error for an unknown benchmark name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("unknown benchmark `{name}`: expected one of {known}")]
pub struct UnknownBenchmark {
    /// The given name.
    pub name: String,
    /// The known names.
    pub known: String,
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use lumos_tasks::{Behaviour, Formulation};

    use super::*;

    #[test]
    fn benchmarks_are_found_by_name() {
        for benchmark in all() {
            assert_eq!(find(benchmark.name()).map(Benchmark::title), Some(benchmark.title()));
            if benchmark.name() == "mind2web" {
                assert_eq!(
                    (benchmark.formulations(), benchmark.downloads()),
                    (&[Formulation::Iterative][..], &[][..])
                );
                continue;
            }
            assert!(benchmark.formulations().contains(&Formulation::Iterative));
            if benchmark.name() != "webshop" {
                if benchmark.name() != "intercode_sql" {
                    assert_eq!(benchmark.formulations(), Formulation::OF_LUMOS);
                }
                assert!(benchmark.downloads().iter().any(|download| download.file == benchmark.data_file()));
            }
            assert!(benchmark.downloads().iter().all(|download| download.sha256.len() == 64));
        }
        let names: BTreeSet<_> = all().iter().map(|benchmark| benchmark.name()).collect();
        assert_eq!(names.len(), all().len());
        assert_eq!(
            get("gsm9k").map(Benchmark::name).unwrap_err().to_string(),
            "unknown benchmark `gsm9k`: expected one of gsm8k, svamp, hotpotqa, strategyqa, mind2web, webshop, \
             intercode_sql"
        );
    }

    #[test]
    fn names_are_unique() {
        let svamp = find("svamp").unwrap();
        assert_eq!(register(&[svamp]), Err(RegisterError::Repeated("svamp")));
        assert_eq!(all().len(), BUILT_IN.len(), "nothing was added");
    }

    #[test]
    fn rounds_and_figures_are_the_published_ones() {
        let rounds = |name| Behaviour::ALL.map(|behaviour| find(name).unwrap().max_rounds(behaviour));
        assert_eq!(rounds("gsm8k"), [8, 8]);
        assert_eq!(rounds("svamp"), [2, 8]);
        assert_eq!((rounds("hotpotqa"), rounds("strategyqa")), ([5, 5], [5, 5]));
        let percents = |name| {
            let published = find(name).unwrap().published();
            published.iter().map(|figure| (figure.formulation, figure.percent)).collect::<Vec<_>>()
        };
        assert!(percents("gsm8k").contains(&(Formulation::Iterative, 47.1)));
        assert!(percents("svamp").contains(&(Formulation::Cot, 52.2)));
        assert!(percents("hotpotqa").contains(&(Formulation::Iterative, 29.4)));
        assert!(percents("strategyqa").contains(&(Formulation::OneTime, 60.6)));
    }
}
