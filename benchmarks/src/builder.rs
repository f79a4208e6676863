//! Benchmarks that a program adds to those of this crate.
//!
//! A [`BenchmarkBuilder`] begins with a [`TaskDefinition`], as a task file contains it: name, agent, fields, metrics. It
//! adds what only code can express: how a record is read, and how an outcome is scored. [`register`](crate::register)
//! makes the benchmarks known in this process; `lumos_eval::Program` builds and registers them.

use lumos_tasks::families::added::register_family;
use lumos_tasks::{Outcome, Target};
use serde_json::Value;
use thiserror::Error;

use crate::benchmark::{Benchmark, Download, Origin, Read, Score};
use crate::loading::{Content, RecordError};
use crate::metrics::MetricDefinition;
use crate::score::{ItemScore, Scoring};
use crate::task_file::{TaskDefinition, describe, kept};

/// A benchmark that a program adds.
///
/// ```
/// use lumos_benchmarks::task_file::{TaskDefinition, TaskFamily};
/// use lumos_benchmarks::{BenchmarkBuilder, Content, DataSource, RecordError};
///
/// // Each record is a sum: `{"terms": [2, 3]}`.
/// let definition = TaskDefinition::new("sums", TaskFamily::Maths, "sums/items.jsonl");
/// let sums = BenchmarkBuilder::new(definition)
///     .version(1)
///     .samples(b"{\"terms\": [2, 3]}\n")
///     .read(|record| {
///         let terms: Vec<i64> = serde_json::from_value(record["terms"].clone())
///             .map_err(|error| RecordError::new("terms", "a list of numbers", error.to_string(), "ValueError"))?;
///         let sum: i64 = terms.iter().sum();
///         Ok(Content::maths(format!("What is the sum of {terms:?}?"), sum.to_string()))
///     })
///     .build()?;
/// let item = sums.open(DataSource::Samples)?.next().unwrap()?;
/// assert_eq!(item.target.text(), "5");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use]
pub struct BenchmarkBuilder {
    definition: TaskDefinition,
    version: u32,
    samples: &'static [u8],
    downloads: Vec<Download>,
    read: Option<Read>,
    score: Option<(Vec<MetricDefinition>, Score)>,
}

impl BenchmarkBuilder {
    /// Begins with a definition. Its data file is relative to the data folder (`--data`).
    pub fn new(definition: TaskDefinition) -> Self {
        Self { definition, version: 0, samples: &[], downloads: Vec::new(), read: None, score: None }
    }

    /// Sets the version, which runs record. Default: 0. Functions have no hash, so raise it when another reading of
    /// records makes other items. A run of another version is neither resumed nor scored. A change of the scoring alone
    /// needs no new version: `lumos score` scores recorded runs again.
    pub fn version(mut self, version: u32) -> Self {
        self.version = version;
        self
    }

    /// Sets built-in samples, in the format of the data file. They are the data of runs without `--data`.
    pub fn samples(mut self, samples: &'static [u8]) -> Self {
        self.samples = samples;
        self
    }

    /// Sets the files that `lumos fetch` downloads. Default: none.
    pub fn downloads(mut self, downloads: Vec<Download>) -> Self {
        self.downloads = downloads;
        self
    }

    /// Sets how a record is read. Default: by the definition's fields.
    pub fn read(
        mut self,
        read: impl Fn(&Value) -> Result<Content, RecordError> + Send + Sync + 'static,
    ) -> Self {
        self.read = Some(Box::leak(Box::new(read)));
        self
    }

    /// Sets the metrics, with the most important first, and how an outcome is scored. Faults are never scored.
    /// [`prediction`](crate::prediction) returns an outcome's answer. Default: by the definition's answers.
    pub fn score(
        mut self,
        metrics: Vec<MetricDefinition>,
        score: impl Fn(&Target, &Outcome, Scoring) -> ItemScore + Send + Sync + 'static,
    ) -> Self {
        let score = move |target: &Target, outcome: &Outcome, scoring| {
            (!outcome.is_fault()).then(|| score(target, outcome, scoring))
        };
        self.score = Some((metrics, Box::leak(Box::new(score))));
        self
    }

    /// Builds the benchmark. It lives as long as the process, so build it once.
    ///
    /// # Errors
    /// If the definition or its family is invalid, or if there are no metrics.
    pub fn build(self) -> Result<&'static dyn Benchmark, InvalidBenchmark> {
        let Self { definition, version, samples, downloads, read, score } = self;
        let invalid = |problems: Vec<String>| InvalidBenchmark { name: definition.name.clone(), problems };
        let problems = definition.problems();
        if !problems.is_empty() {
            return Err(invalid(
                problems.iter().map(|(key, problem)| format!("`{key}`: {problem}")).collect(),
            ));
        }
        if score.as_ref().is_some_and(|(metrics, _)| metrics.is_empty()) {
            return Err(invalid(vec!["no metrics: expected at least one".to_owned()]));
        }
        if let Some(family) = definition.added_family {
            if read.is_none() {
                return Err(invalid(vec![
                    "`read` is missing: it makes the tasks of a family in Rust".to_owned(),
                ]));
            }
            register_family(family).map_err(|error| invalid(vec![error.to_string()]))?;
        }
        let definition: &'static TaskDefinition = Box::leak(Box::new(definition));
        let mut about = describe(definition, Origin::Program { definition, version });
        about.samples = samples;
        about.downloads = Vec::leak(downloads);
        about.read = read.unwrap_or(about.read);
        if let Some((metrics, score)) = score {
            (about.metrics, about.score) = (Vec::leak(metrics), score);
        }
        Ok(kept(about, definition))
    }
}

/// An invalid benchmark of a program.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("invalid benchmark `{name}`: {}", problems.join("; "))]
pub struct InvalidBenchmark {
    /// Its name.
    pub name: String,
    /// What is wrong, each with its key.
    pub problems: Vec<String>,
}

#[cfg(test)]
mod tests {
    use lumos_tasks::{Ending, Evidence, Fault, FaultKind};

    use super::*;
    use crate::loading::DataSource;
    use crate::metrics::prediction;
    use crate::task_file::TaskFamily;

    const LENGTH: MetricDefinition =
        MetricDefinition::proportion("length", "share of answers of the right length");

    fn definition() -> TaskDefinition {
        TaskDefinition::new("words", TaskFamily::Maths, "words/items.jsonl")
    }

    fn built(builder: BenchmarkBuilder) -> &'static dyn Benchmark {
        builder.build().map_err(|error| error.to_string()).unwrap()
    }

    #[test]
    fn records_are_read_by_the_definition_or_by_a_function() {
        const SAMPLES: &[u8] = b"{\"question\": \"One and one?\", \"answer\": 2}\n";
        let own = built(BenchmarkBuilder::new(definition()).samples(SAMPLES));
        let read = |benchmark: &dyn Benchmark| {
            let item = benchmark.open(DataSource::Samples).unwrap().next().unwrap().unwrap();
            item.target.text().to_owned()
        };
        assert_eq!(read(own), "2");
        assert_eq!((own.version(), own.task_file().is_none(), own.tools()), (Some(0), true, &["maths"][..]));
        let function = |record: &Value| {
            Ok(Content::maths("How many fields?", record.as_object().unwrap().len().to_string()))
        };
        let other = built(BenchmarkBuilder::new(definition()).samples(SAMPLES).read(move |record| {
            function(record).map(|content| Content { name: Some("a".to_owned()), ..content })
        }));
        assert_eq!(read(other), "2");
        let missing = other.open(DataSource::File("words/none.jsonl".into())).err().unwrap().to_string();
        assert_eq!(missing, "words/none.jsonl: file not found; set the data folder with `--data PATH`");
    }

    #[test]
    fn the_version_changes_the_configurations() {
        let of = |version| built(BenchmarkBuilder::new(definition()).version(version)).prompts_hash();
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn outcomes_are_scored_by_the_function_and_faults_by_none() {
        let own = built(BenchmarkBuilder::new(definition()).score(vec![LENGTH], |target, outcome, _| {
            let length = prediction(outcome).map(str::len);
            ItemScore::met(LENGTH.name, length == Some(target.text().len()))
        }));
        let target = Target::Number { answer: "12".to_owned() };
        let plan = lumos_tasks::outcome::PlanEvidence {
            prediction: Some("77".into()),
            ..lumos_tasks::outcome::PlanEvidence::default()
        };
        let mut outcome =
            Outcome { ending: Ending::Answered, evidence: Some(Evidence::Maths(plan)), steps: Vec::new() };
        let score = own.score(&target, &outcome, Scoring::Paper).unwrap();
        assert!(score.is_full("length"));
        assert_eq!(own.metrics(), [LENGTH]);
        outcome.ending = Ending::Faulted(Fault { kind: FaultKind::Worker, message: String::new() });
        assert_eq!(own.score(&target, &outcome, Scoring::Paper), None);
    }

    #[test]
    fn errors_name_the_benchmark_and_the_key() {
        let error = |builder: BenchmarkBuilder| builder.build().map(Benchmark::name).unwrap_err().to_string();
        let named = TaskDefinition::new("svamp", TaskFamily::Maths, "items.jsonl");
        assert_eq!(
            error(BenchmarkBuilder::new(named)),
            "invalid benchmark `svamp`: `name`: `svamp` is the name of a benchmark of this program; choose another name"
        );
        let custom = TaskDefinition::new("own", TaskFamily::Custom, "items.jsonl");
        assert!(
            error(BenchmarkBuilder::new(custom))
                .contains("`family`: the family custom needs a table `agent`")
        );
        let unscored = BenchmarkBuilder::new(definition()).score(Vec::new(), |_, _, _| ItemScore::default());
        assert_eq!(error(unscored), "invalid benchmark `words`: no metrics: expected at least one");
    }
}
