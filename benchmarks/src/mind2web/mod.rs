//! Mind2Web: tasks on recorded web pages (Deng et al. 2023; upstream `eval/mind2web/run_eval.py` of Lumos and
//! `action_prediction/metric.py` of Mind2Web).

mod record;
mod score;

use std::path::{Path, PathBuf};

use lumos_tasks::families::web;
use lumos_tasks::{Behaviour, Configuration, Formulation, Item};

use crate::benchmark::{
    Benchmark, BenchmarkDescription, LATER_LISTING, MODULES, Origin, PROJECT_PAGE, PublishedFigure, Training,
    figure,
};
use crate::error::DataError;
use crate::loading::{DataSource, Items, Many, open_many};
use crate::metrics::MetricDefinition;
use crate::task_file::TaskFamily;

pub(crate) use score::{acts_with_operation, acts_with_value, succeeds_as_published};

/// Mind2Web's test splits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Mind2Web;

/// Hint for missing test files, which may not be redistributed and therefore cannot be downloaded by `lumos
/// fetch`.
const REMEDY: &str = "the authors distribute the test splits in a password-protected archive that may not be shared: \
                      see docs/mind2web.md for how to get and unpack them, or omit `--data` to use the built-in samples";

/// Maximum length of a record: a task with all its pages, including raw ones.
const MAX_TASK: u64 = 512 << 20;

static MIND2WEB: BenchmarkDescription = BenchmarkDescription {
    origin: Origin::BuiltIn,
    name: "mind2web",
    title: "Mind2Web",
    family: TaskFamily::Web,
    data_file: "mind2web/test_domain",
    formulations: &[Formulation::Iterative],
    max_rounds: &|behaviour| match behaviour {
        Behaviour::Paper => 15,
        // Every gold step counts, so no episode may be cut off.
        Behaviour::Corrected => 200,
    },
    modules: &MODULES,
    tools: &["rank", "web"],
    prompts_hash: &web::prompts_hash,
    metrics: &[
        score::STEP_SUCCESS,
        score::EXECUTABLE,
        score::REACHABLE,
        score::ELEMENT_ACCURACY,
        score::ACTION_F1,
        score::OFFICIAL_STEP_SUCCESS,
        score::TASK_SUCCESS,
        score::MACRO_ELEMENT_ACCURACY,
        score::MACRO_ACTION_F1,
        score::MACRO_STEP_SUCCESS,
    ],
    published: &PUBLISHED,
    // The publication does not state how many tasks of `test_domain` it evaluated.
    published_items: None,
    downloads: &[],
    group_label: Some("Split, domain, website"),
    annotation_domain: Some("web_agent"),
    training: Training::Items(|item| {
        item.group.as_deref().is_some_and(|group| group.lines().any(|line| line == TRAINING_SPLIT))
    }),
    samples: include_bytes!("../../samples/mind2web.json"),
    open: open_split,
    read: &record::read,
    score: &score::score,
};

impl Benchmark for Mind2Web {
    fn description(&self) -> &'static BenchmarkDescription {
        &MIND2WEB
    }

    fn is_measured(&self, metric: &MetricDefinition, configuration: &Configuration) -> bool {
        let takes_a_browser = [score::EXECUTABLE.name, score::REACHABLE.name].contains(&metric.name);
        !takes_a_browser || configuration.has_browser()
    }

    /// The website.
    fn cluster(&self, item: &Item) -> Option<String> {
        let groups = item.group.as_deref()?.split(record::BETWEEN_GROUPS);
        groups.into_iter().find(|group| group.starts_with(record::WEBSITE)).map(str::to_owned)
    }

    /// Prompts contain verbs for earlier actions, which are drawn at random.
    fn draws(&self) -> bool {
        true
    }
}

/// Opens the files of a split, or a single file.
fn open_split(about: &'static BenchmarkDescription, source: DataSource) -> Result<Items, DataError> {
    let files = match &source {
        DataSource::File(path) if path.is_dir() => json_files(path)?,
        _ => vec![source],
    };
    let many = Many {
        about,
        remedy: REMEDY,
        longest: MAX_TASK,
        prepare: |file, record| record::reduced(record, file.and_then(split_of)),
    };
    open_many(many, files)
}

/// Returns the files of a split, sorted by number: `test_domain_2.json` before `test_domain_10.json`.
fn json_files(folder: &Path) -> Result<Vec<DataSource>, DataError> {
    let file = || folder.display().to_string();
    let unreadable = |error: std::io::Error| DataError::Unreadable {
        file: file(),
        reason: error.to_string(),
        remedy: REMEDY.to_owned(),
    };
    let mut files = Vec::new();
    for entry in std::fs::read_dir(folder).map_err(unreadable)? {
        let path = entry.map_err(unreadable)?.path();
        if path.extension().is_some_and(|extension| extension == "json") && path.is_file() {
            files.push(path);
        }
    }
    files.sort_by_cached_key(|path| numbered(path));
    if files.is_empty() {
        return Err(DataError::Empty { file: file(), remedy: REMEDY.to_owned() });
    }
    Ok(files.into_iter().map(DataSource::File).collect())
}

/// Splits a file's name into the text and the number.
fn numbered(path: &Path) -> (String, u64, PathBuf) {
    let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned()).unwrap_or_default();
    let name = stem.trim_end_matches(|character: char| character.is_ascii_digit());
    let number = stem[name.len()..].parse().unwrap_or(0);
    (name.to_owned(), number, path.to_owned())
}

/// Returns the split of a file, from its name.
fn split_of(file: &Path) -> Option<&'static str> {
    let name = file.file_name()?.to_str()?;
    ["test_task", "test_website", "test_domain", "train"].into_iter().find(|split| name.starts_with(split))
}

/// Line in the group of a task of the training split.
const TRAINING_SPLIT: &str = "split: train";

const PUBLISHED: [PublishedFigure; 3] = [
    figure(&score::STEP_SUCCESS, Formulation::Iterative, "Lumos-I 7B", 27.6, PROJECT_PAGE),
    figure(&score::STEP_SUCCESS, Formulation::Iterative, "Lumos-I 13B", 31.3, LATER_LISTING),
    figure(&score::STEP_SUCCESS, Formulation::Integrated, "integrated training 7B", 25.3, PROJECT_PAGE),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_come_in_the_order_of_their_numbers() {
        let folder = tempfile::tempdir().unwrap();
        assert!(matches!(json_files(folder.path()), Err(DataError::Empty { .. })));
        for name in ["test_domain_10.json", "test_domain_2.json", "README.md", "test_domain_0.json"] {
            std::fs::write(folder.path().join(name), "[]").unwrap();
        }
        let names = json_files(folder.path()).unwrap().into_iter().map(|source| match source {
            DataSource::File(path) => (path.file_name().unwrap().to_owned(), split_of(&path)),
            DataSource::Samples => unreachable!(),
        });
        let names: Vec<_> = names.map(|(name, split)| (name.into_string().unwrap(), split)).collect();
        let split = Some("test_domain");
        let expected = ["test_domain_0.json", "test_domain_2.json", "test_domain_10.json"];
        assert_eq!(names, expected.map(|name| (name.to_owned(), split)));
    }

    #[test]
    fn an_empty_file_of_a_split_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let write = |name: &str, text: &[u8]| std::fs::write(folder.path().join(name), text).unwrap();
        let open = || open_split(&MIND2WEB, DataSource::File(folder.path().to_owned()));
        let empty = |error: DataError| match error {
            DataError::Empty { file, .. } => file,
            other => panic!("{other}"),
        };
        write("test_domain_0.json", MIND2WEB.samples);
        write("test_domain_1.json", b"");
        let path = |name: &str| folder.path().join(name).display().to_string();
        let errors: Vec<_> = open().unwrap().filter_map(Result::err).map(empty).collect();
        assert_eq!(errors, [path("test_domain_1.json")]);
        write("test_domain_0.json", b"[]");
        assert_eq!(open().err().map(empty), Some(path("test_domain_0.json")));
    }
}
