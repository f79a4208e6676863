//! Task files: custom benchmarks, described in TOML instead of Rust (docs/guide/own-data.md).
//!
//! A [`TaskDefinition`] names the data, maps its fields, and selects the agent's actions, how answers are compared and
//! which metrics are reported. [`TaskFile::benchmark`] turns it into a [`Benchmark`], with which everything works
//! that works with the built-in ones. A run keeps its task files in its manifest.
//!
//! ```
//! use lumos_benchmarks::task_file::{TaskDefinition, TaskFile, TaskFamily};
//!
//! let definition = TaskDefinition::new("shelves", TaskFamily::Maths, "items.jsonl");
//! let file = TaskFile { path: "shelves/task.toml".into(), definition };
//! assert!(file.definition.problems().is_empty());
//! let benchmark = file.benchmark();
//! assert_eq!((benchmark.name(), benchmark.tools()), ("shelves", &["maths"][..]));
//! ```

mod benchmark;
mod problems;
mod record;

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use lumos_tasks::families::added::FamilyDescription;
use lumos_tasks::families::agent::AgentDefinition;
use lumos_tasks::{ContentHash, Formulation};
use serde::{Deserialize, Serialize};

use crate::benchmark::Benchmark;

pub(crate) use benchmark::{describe, kept};
pub(crate) use problems::problems;

/// A task file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TaskFile {
    /// Path of the file. Paths in the definition are relative to its folder.
    pub path: PathBuf,
    /// Its content.
    pub definition: TaskDefinition,
}

/// Content of a task file, and what a [`BenchmarkBuilder`](crate::BenchmarkBuilder) begins with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskDefinition {
    /// Name on the command line and in files.
    pub name: String,
    /// Name in reports. Default: `name`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The agent's actions and prompts.
    pub family: TaskFamily,
    /// Supported formulations. Default: those of the family.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub formulations: Vec<Formulation>,
    /// Maximum number of planner turns of an iterative episode. Default: that of the family.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_rounds: Option<u32>,
    /// Metrics, with the most important first. Default: those of the answer's kind.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub metrics: Vec<String>,
    /// The data.
    pub data: TaskData,
    /// Which fields of a record are used.
    #[serde(default)]
    pub fields: TaskFields,
    /// How the gold answer is read and compared.
    #[serde(default)]
    pub answer: TaskAnswer,
    /// The agent of the family `custom`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub agent: Option<Arc<AgentDefinition>>,
    /// The family in Rust, instead of an agent, of the family `custom` of a program.
    #[serde(skip)]
    pub added_family: Option<&'static FamilyDescription>,
    /// Backends by tool, as for `--tool`, which takes precedence.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub tools: BTreeMap<String, String>,
    /// Figures to compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub published: Vec<TaskFigure>,
}

/// The agent's actions and prompts in a task file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TaskFamily {
    /// Those of GSM8K and SVAMP: a calculator and equations.
    Maths,
    /// Those of HotpotQA and StrategyQA: retrieval and a QA model.
    Qa,
    /// Those of Mind2Web: actions on recorded pages. Records have Mind2Web's format.
    Web,
    /// Those of WebShop: a visit to a shop. Records are goals in WebShop's format.
    Shop,
    /// Those of InterCode SQL: statements on a database.
    Sql,
    /// Those of the file's own agent, or of a family that a program adds.
    Custom,
}

/// The data of a task file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskData {
    /// Data set of the Hugging Face hub that has the file: `owner/name`. Default: the file is on this host.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hub: Option<String>,
    /// Branch, tag or commit of the data set. Default: `main`. The manifest of a run has the commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
    /// Path of the data file, relative to the task file, or in the data set of the hub.
    pub file: PathBuf,
    /// Its format. Default: by the ending of its name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub format: Option<DataFormat>,
    /// Number of items on which the published figures were measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub items: Option<u64>,
    /// Whether items may become training data (`lumos export --to annotations`). Default: no.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub training: bool,
}

/// Format of a data file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DataFormat {
    /// JSON lines: one record per line.
    Jsonl,
    /// One JSON array of records.
    Json,
    /// Comma-separated values, with the names of the fields in the first line.
    Csv,
    /// Parquet, whose columns are the fields. Needs the feature `parquet`.
    Parquet,
}

impl DataFormat {
    /// Returns the format of a file by the ending of its name.
    fn of(file: &Path) -> Option<Self> {
        match file.extension()?.to_str()?.to_ascii_lowercase().as_str() {
            "jsonl" | "ndjson" => Some(Self::Jsonl),
            "json" => Some(Self::Json),
            "csv" => Some(Self::Csv),
            "parquet" => Some(Self::Parquet),
            _ => None,
        }
    }
}

/// Names of a record's fields. A name with dots also finds a field within objects: `meta.level`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskFields {
    /// The question. Default: `question`.
    pub question: String,
    /// The gold answer. Default: `answer`.
    pub answer: String,
    /// The item's own name, which must be unique.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// Group by which figures are also reported.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group: Option<String>,
    /// Text placed before the question.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// Cluster of items whose results depend on each other, such as questions about the same text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cluster: Option<String>,
    /// The database's name, for the family `sql`. Default: `database`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub database: Option<String>,
}

impl Default for TaskFields {
    fn default() -> Self {
        Self {
            question: "question".to_owned(),
            answer: "answer".to_owned(),
            id: None,
            group: None,
            context: None,
            cluster: None,
            database: None,
        }
    }
}

/// How gold answers are read and compared with predictions.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TaskAnswer {
    /// What answers are. Default: `value` for `maths`, otherwise `text`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub kind: Option<AnswerKind>,
    /// Regular expression with one group, which finds the gold answer in its field.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pattern: Option<String>,
    /// Tolerated relative difference of numbers. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tolerance: Option<f64>,
}

/// What answers are, which decides how they are compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerKind {
    /// Numbers and fractions, compared by value.
    Number,
    /// Numbers if both answers are numbers, otherwise texts.
    Value,
    /// Texts, compared without case, punctuation and articles.
    Text,
    /// Yes or no.
    YesNo,
}

/// A figure to compare with.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TaskFigure {
    /// The metric. Default: the first.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metric: Option<String>,
    /// The formulation.
    pub formulation: Formulation,
    /// The measured system.
    pub system: String,
    /// The figure in percent.
    pub percent: f64,
    /// Where it was published.
    #[serde(default)]
    pub source: String,
}

impl TaskDefinition {
    /// Creates a definition with defaults.
    pub fn new(name: impl Into<String>, family: TaskFamily, data: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            title: None,
            family,
            formulations: Vec::new(),
            max_rounds: None,
            metrics: Vec::new(),
            data: TaskData {
                hub: None,
                revision: None,
                file: data.into(),
                format: None,
                items: None,
                training: false,
            },
            fields: TaskFields::default(),
            answer: TaskAnswer::default(),
            agent: None,
            added_family: None,
            tools: BTreeMap::new(),
            published: Vec::new(),
        }
    }

    /// What answers are.
    pub fn answer_kind(&self) -> AnswerKind {
        self.answer.kind.unwrap_or(match self.family {
            TaskFamily::Maths => AnswerKind::Value,
            _ => AnswerKind::Text,
        })
    }

    /// Format of the data, or `None` if the ending of the file's name is unknown.
    pub fn format(&self) -> Option<DataFormat> {
        self.data.format.or_else(|| DataFormat::of(&self.data.file))
    }

    /// Returns what is wrong with the values, each with its key: `answer.pattern`. Empty if the definition can be
    /// used.
    pub fn problems(&self) -> Vec<(Cow<'static, str>, String)> {
        problems(self, None)
    }

    /// Hash of everything that changes items, for the identity of configurations.
    fn items_hash(&self) -> ContentHash {
        ContentHash::of_json(&(
            "task-file/1",
            self.family,
            &self.fields,
            self.answer_kind(),
            &self.answer.pattern,
        ))
    }

    /// Whether behaviour `paper` reproduces the published question-answering scripts.
    fn has_paper_quirks(&self) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.paper_quirks)
    }

    /// Returns the tools that the agent calls, sorted.
    pub fn called_tools(&self) -> Vec<&str> {
        match (&self.agent, self.added_family) {
            (Some(agent), _) if self.family == TaskFamily::Custom => agent.tools(),
            (_, Some(family)) => family.tools.to_vec(),
            _ => self.family.base().description().tools.to_vec(),
        }
    }
}

impl TaskFile {
    /// Ending of the names of task files.
    pub const ENDING: &str = ".toml";

    /// Maximum length of a task file in bytes.
    pub const MOST_BYTES: u64 = 1 << 20;

    /// Whether items have names of their own.
    pub fn has_names(&self) -> bool {
        self.definition.fields.id.is_some()
    }

    /// Returns the path of the data file. That of a data set of the hub is `hub:owner/name/` and its path there; the
    /// program that runs it downloads the file.
    pub fn data_file(&self) -> PathBuf {
        let data = &self.definition.data;
        match &data.hub {
            Some(id) => Path::new(&format!("hub:{id}")).join(&data.file),
            None => self.resolve(&data.file),
        }
    }

    /// Returns a path that is relative to the task file's folder.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        self.path.parent().unwrap_or(Path::new("")).join(path)
    }

    /// Returns the benchmark that the file describes. The definition must be free of
    /// [problems](TaskDefinition::problems).
    ///
    /// Benchmarks live as long as the process; equal files give the same one.
    pub fn benchmark(&self) -> &'static dyn Benchmark {
        benchmark::interned(self)
    }
}

#[cfg(test)]
mod tests;
