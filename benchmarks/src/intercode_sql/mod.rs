//! InterCode SQL: questions about Spider's databases, answered by executing statements (Yang et al. 2023; Yu
//! et al. 2018).

mod score;

use lumos_environments::sql::guard::check_gold;
use lumos_tasks::families::sql;
use lumos_tasks::{Formulation, Item, Setup, Target, Task};
use serde_json::Value;

use crate::benchmark::{
    Benchmark, BenchmarkDescription, Download, LATER_LISTING, MODULES, Origin, PublishedFigure,
    PublishedItems, Training, figure,
};
use crate::loading::{Content, Layout, RecordError, open, optional_text, quoted, text};
use crate::task_file::TaskFamily;
use score::{EMPTY_GOLD, REWARD, SUCCESS_RATE, SUCCESS_WITH_ROWS, TURNS};

/// Maximum number of turns of an episode.
const MAX_TURNS: u32 = 10;

/// InterCode's SQL environment on Spider's development set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntercodeSql;

static INTERCODE_SQL: BenchmarkDescription = BenchmarkDescription {
    origin: Origin::BuiltIn,
    name: "intercode_sql",
    title: "InterCode SQL",
    family: TaskFamily::Sql,
    data_file: "intercode_sql/ic_spider_dev.json",
    formulations: &[Formulation::Iterative, Formulation::TryAgain],
    max_rounds: &|_| MAX_TURNS,
    modules: &MODULES,
    tools: &["sql"],
    prompts_hash: &sql::prompts_hash,
    metrics: &[SUCCESS_RATE, REWARD, TURNS, EMPTY_GOLD, SUCCESS_WITH_ROWS],
    published: &PUBLISHED,
    published_items: Some(PublishedItems::All(1034)),
    downloads: &DOWNLOADS,
    group_label: Some("Hardness"),
    annotation_domain: None,
    training: Training::Unlisted(include_bytes!("../test_items/intercode_sql.bin")),
    samples: include_bytes!("../../samples/intercode_sql.json"),
    open: |about, source| open(about, &source, Layout::Either),
    read: &read_record,
    score: &|_, outcome, scoring| score::score(outcome, scoring),
};

impl Benchmark for IntercodeSql {
    fn description(&self) -> &'static BenchmarkDescription {
        &INTERCODE_SQL
    }

    /// The database.
    fn cluster(&self, item: &Item) -> Option<String> {
        match &item.task {
            Task::Sql { database, .. } => Some(database.clone()),
            _ => None,
        }
    }
}

/// Parses a record: `{"db", "gold", "query", "hardness", "db_tables"}` (upstream `data/sql/spider`). The tables
/// are not shown to the agent. Its group is the hardness.
fn read_record(record: &Value) -> Result<Content, RecordError> {
    let database = text(record, "db")?.to_owned();
    let gold = checked_gold("gold", text(record, "gold")?.to_owned())?;
    let question = text(record, "query")?.to_owned();
    Ok(Content {
        name: None,
        group: optional_text(record, "hardness"),
        task: Task::Sql { question, database: database.clone() },
        setup: Setup::Sql { database, gold: gold.clone() },
        target: Target::Text { answer: gold },
    })
}

/// Returns the gold query in a field, unless every episode of its item would reject it.
pub(crate) fn checked_gold(field: &'static str, gold: String) -> Result<String, RecordError> {
    check_gold(&gold).map_err(|reason| {
        let found = format!("{}: rejected with `{reason}`", quoted(&gold));
        RecordError::new(field, "a statement that an agent may run", found, "ValueError")
    })?;
    Ok(gold)
}

/// The published logs of the benchmark's own runner, with ten turns.
const LOGS: &str = "InterCode's published logs, 10 turns";

const PUBLISHED: [PublishedFigure; 8] = [
    figure(&SUCCESS_RATE, Formulation::Iterative, "Lumos-I 13B", 7.3, LATER_LISTING),
    figure(&SUCCESS_RATE, Formulation::TryAgain, "GPT-4", 73.7, LOGS),
    figure(&SUCCESS_RATE, Formulation::TryAgain, "GPT-3.5", 47.3, LOGS),
    figure(&SUCCESS_RATE, Formulation::TryAgain, "text-davinci-003", 15.6, LOGS),
    figure(&SUCCESS_RATE, Formulation::TryAgain, "text-bison", 12.9, LOGS),
    figure(&SUCCESS_RATE, Formulation::TryAgain, "chat-bison", 9.9, LOGS),
    figure(&SUCCESS_RATE, Formulation::TryAgain, "StarChat", 9.7, LOGS),
    figure(&SUCCESS_RATE, Formulation::TryAgain, "Vicuna", 6.3, LOGS),
];

const DOWNLOADS: [Download; 2] = [
    Download {
        file: "intercode_sql/ic_spider_dev.json",
        url: "https://raw.githubusercontent.com/princeton-nlp/intercode/c3e46d827cfc9d4c704ec078f7abf9f41e3191d8/data/sql/spider/ic_spider_dev.json",
        sha256: "68c9ecb0692c80770f46c724cc073ea76be4f301a294caa532c050546948128e",
        licence: "CC BY-SA 4.0",
    },
    Download {
        file: "intercode_sql/ic_spider_dbs.sql",
        url: "https://raw.githubusercontent.com/princeton-nlp/intercode/c3e46d827cfc9d4c704ec078f7abf9f41e3191d8/data/sql/spider/ic_spider_dbs.sql",
        sha256: "61f6e8000cb5bb696f123fa55e111acdcd8da7eca64f452a36fd1a6e5fb1781a",
        licence: "CC BY-SA 4.0",
    },
];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::error::DataError;
    use crate::loading::DataSource;

    #[test]
    fn the_episode_sees_no_gold_query() {
        let record = json!({
            "db": "zoo", "gold": "SELECT 1", "query": "How many?", "hardness": "easy", "db_tables": {"pen": ["id"]},
        });
        let content = read_record(&record).unwrap();
        assert_eq!(content.group.as_deref(), Some("easy"));
        assert!(!serde_json::to_string(&content.task).unwrap().contains("SELECT"));
        assert_eq!(read_record(&json!({ "db": "zoo", "query": "?" })).unwrap_err().field, "gold");
    }

    #[test]
    fn gold_queries_that_no_episode_would_run_are_errors_of_their_records() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let record = |gold: &str| json!({ "db": "zoo", "gold": gold, "query": "How many?" }).to_string();
        let golds = ["SELECT 1", "SELECT SLEEP(9)", "USE zoo", "SELECT COUNT (*) FROM pen;", "SELEC 1"];
        std::fs::write(file.path(), golds.map(record).join("\n")).unwrap();
        let items = IntercodeSql.open(DataSource::File(file.path().to_owned())).unwrap();
        let errors: Vec<_> = items.filter_map(Result::err).collect();
        assert!(errors.iter().all(DataError::is_skippable));
        let file = file.path().display();
        let expected = "field `gold`: expected a statement that an agent may run, found the string";
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [
                format!(
                    "{file}:2: {expected} \"SELECT SLEEP(9)\": rejected with `The function SLEEP is refused`"
                ),
                format!("{file}:3: {expected} \"USE zoo\": rejected with `USE is refused`"),
            ]
        );
    }
}
