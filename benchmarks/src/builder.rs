//! Benchmarks that a program adds to those of this crate.
//!
//! A [`BenchmarkBuilder`] begins with a [`TaskDefinition`], as a task file contains it: name, agent, fields, metrics. It
//! adds what only code can express: how a record is read, and how an outcome is scored. [`register`](crate::register)
//! makes the benchmarks known in this process; `lumos_eval::Program` builds and registers them.

use lumos_tasks::families::added::register_family;
use lumos_tasks::{Outcome, Target, Task};
use serde_json::Value;
use thiserror::Error;

use crate::benchmark::{Benchmark, Download, Origin, Read, Score};
use crate::loading::{Content, RecordError};
use crate::metrics::MetricDefinition;
use crate::score::{ItemScore, Scoring};
use crate::task_file::{TaskDefinition, describe, kept, problems};

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

    /// Sets how a record is read. Default: by the definition's fields. Tasks of a family in Rust get the name and version
    /// of the definition's family.
    pub fn read(
        mut self,
        read: impl Fn(&Value) -> Result<Content, RecordError> + Send + Sync + 'static,
    ) -> Self {
        self.read = Some(Box::leak(Box::new(read)));
        self
    }

    /// Sets the metrics, with the most important first, and how an outcome is scored. Faults are never scored.
    /// [`prediction`](crate::prediction) returns an outcome's answer. The definition's published figures are of these
    /// metrics, and its field `metrics` must be empty. Default: by the definition's answers.
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
        let Self { definition, version, samples, downloads, mut read, score } = self;
        let invalid = |problems: Vec<String>| InvalidBenchmark { name: definition.name.clone(), problems };
        let problems = problems(&definition, score.as_ref().map(|(metrics, _)| metrics.as_slice()));
        if !problems.is_empty() {
            return Err(invalid(
                problems.iter().map(|(key, problem)| format!("`{key}`: {problem}")).collect(),
            ));
        }
        if score.as_ref().is_some_and(|(metrics, _)| metrics.is_empty()) {
            return Err(invalid(vec!["no metrics: expected at least one".to_owned()]));
        }
        if let Some(family) = definition.added_family {
            let Some(unnamed) = read else {
                return Err(invalid(vec![
                    "`read` is missing: it makes the tasks of a family in Rust".to_owned(),
                ]));
            };
            register_family(family).map_err(|error| invalid(vec![error.to_string()]))?;
            let named = move |record: &Value| -> Result<Content, RecordError> {
                let mut content = unnamed(record)?;
                if let Task::Added(task) = &mut content.task {
                    task.name = family.name.to_owned();
                    task.version = Some(family.version);
                }
                Ok(content)
            };
            read = Some(Box::leak(Box::new(named)));
        }
        let definition: &'static TaskDefinition = Box::leak(Box::new(definition));
        let (metrics, score) = score.map(|(metrics, score)| (&*Vec::leak(metrics), score)).unzip();
        let mut about = describe(definition, Origin::Program { definition, version }, metrics);
        about.samples = samples;
        about.downloads = Vec::leak(downloads);
        about.read = read.unwrap_or(about.read);
        about.score = score.unwrap_or(about.score);
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
    use lumos_tasks::families::added::FamilyDescription;
    use lumos_tasks::{AddedTask, Ending, Evidence, Fault, FaultKind, Formulation, Setup};

    use super::*;
    use crate::loading::DataSource;
    use crate::metrics::prediction;
    use crate::task_file::{TaskFamily, TaskFigure};

    const LENGTH: MetricDefinition =
        MetricDefinition::proportion("length", "share of answers of the right length");

    fn definition() -> TaskDefinition {
        TaskDefinition::new("words", TaskFamily::Maths, "words/items.jsonl")
    }

    fn of_family(version: u32) -> TaskDefinition {
        let mut definition = TaskDefinition::new("spelling", TaskFamily::Custom, "spelling/items.jsonl");
        definition.added_family = Some(Box::leak(Box::new(FamilyDescription {
            name: "speller",
            version,
            formulations: &[Formulation::Iterative],
            tools: &[],
            start: |_, _| unreachable!(),
        })));
        definition
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
        let of = |version| {
            let definition: &'static TaskDefinition = Box::leak(Box::new(of_family(version)));
            (describe(definition, Origin::Program { definition, version: 0 }, None).prompts_hash)()
        };
        assert_eq!(of(1), of(1));
        assert_ne!(of(1), of(2));
    }

    #[test]
    fn tasks_of_a_family_have_its_name_and_version() {
        let spelling = built(BenchmarkBuilder::new(of_family(3)).read(|_| {
            let task = AddedTask { name: "speler".to_owned(), ..AddedTask::new("Spell it.", Value::Null) };
            Ok(Content::added(task, Setup::None, "it"))
        }));
        let Task::Added(task) = spelling.read(&Value::Null).unwrap().task else { panic!() };
        assert_eq!((task.name.as_str(), task.version), ("speller", Some(3)));
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
        assert!(score.is_full(&LENGTH));
        assert_eq!(own.metrics(), [LENGTH]);
        outcome.ending = Ending::Faulted(Fault { kind: FaultKind::Worker, message: String::new() });
        assert_eq!(own.score(&target, &outcome, Scoring::Paper), None);
    }

    #[test]
    fn published_figures_are_of_the_metrics_of_the_function() {
        let published = |metric: Option<&str>| {
            let mut definition = definition();
            definition.data.items = Some(4);
            definition.published = vec![TaskFigure {
                metric: metric.map(str::to_owned),
                formulation: Formulation::Iterative,
                system: "ours".to_owned(),
                percent: 50.0,
                source: String::new(),
            }];
            definition
        };
        let scored = |definition: TaskDefinition| {
            BenchmarkBuilder::new(definition).score(vec![LENGTH], |_, _, _| ItemScore::default())
        };
        for metric in [None, Some("length")] {
            let figures = built(scored(published(metric))).published();
            assert_eq!((figures.len(), figures[0].metric), (1, "length"));
        }
        let error = |definition| scored(definition).build().map(Benchmark::name).unwrap_err().to_string();
        assert_eq!(
            error(published(Some("exact_match"))),
            "invalid benchmark `words`: `published.metric`: unknown metric `exact_match`: expected length"
        );
        let mut twice = definition();
        twice.metrics = vec!["exact_match".to_owned()];
        assert_eq!(
            error(twice),
            "invalid benchmark `words`: `metrics`: `score` already sets the metrics; remove them from the definition"
        );
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
