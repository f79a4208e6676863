//! InterCode SQL: questions about Spider's databases, answered by executing statements (Yang et al. 2023; Yu
//! et al. 2018).

mod score;

use lumos_tasks::families::sql;
use lumos_tasks::{Behaviour, ContentHash, Formulation, Outcome, Setup, Target, Task};
use serde_json::Value;

use crate::benchmark::{Benchmark, Download, LATER_LISTING, PublishedFigure, PublishedItems};
use crate::error::DataError;
use crate::loading::{Content, DataSource, Items, Layout, RecordError, open, optional_text, text};
use crate::metrics::MetricDefinition;
use crate::score::{ItemScore, Scoring};
use score::{EMPTY_GOLD, REWARD, SUCCESS_RATE, SUCCESS_WITH_ROWS, TURNS};

/// Maximum number of turns of an episode.
const MAX_TURNS: u32 = 10;

/// InterCode's SQL environment on Spider's development set.
#[derive(Debug, Clone, Copy)]
pub(crate) struct IntercodeSql;

impl Benchmark for IntercodeSql {
    fn name(&self) -> &'static str {
        "intercode_sql"
    }

    fn title(&self) -> &'static str {
        "InterCode SQL"
    }

    fn data_file(&self) -> &'static str {
        "intercode_sql/ic_spider_dev.json"
    }

    fn formulations(&self) -> &'static [Formulation] {
        &[Formulation::Iterative, Formulation::TryAgain]
    }

    fn max_rounds(&self, _behaviour: Behaviour) -> u32 {
        MAX_TURNS
    }

    fn tools(&self) -> &'static [&'static str] {
        &["sql"]
    }

    fn prompts_hash(&self) -> ContentHash {
        sql::prompts_hash()
    }

    fn metrics(&self) -> &'static [MetricDefinition] {
        &[SUCCESS_RATE, REWARD, TURNS, EMPTY_GOLD, SUCCESS_WITH_ROWS]
    }

    fn published(&self) -> &'static [PublishedFigure] {
        &PUBLISHED
    }

    fn published_items(&self) -> Option<PublishedItems> {
        Some(PublishedItems::All(1034))
    }

    fn downloads(&self) -> &'static [Download] {
        &DOWNLOADS
    }

    fn group_label(&self) -> Option<&'static str> {
        Some("Hardness")
    }

    fn samples(&self) -> &'static [u8] {
        include_bytes!("../../samples/intercode_sql.json")
    }

    fn open(&self, source: DataSource) -> Result<Items, DataError> {
        open(self.name(), &source, self.samples(), Layout::Either, read_record)
    }

    fn read(&self, record: &Value) -> Result<Content, RecordError> {
        read_record(record)
    }

    fn score(&self, _target: &Target, outcome: &Outcome, scoring: Scoring) -> Option<ItemScore> {
        score::score(outcome, scoring)
    }
}

/// Parses a record: `{"db", "gold", "query", "hardness", "db_tables"}` (upstream `data/sql/spider`). The tables
/// are not shown to the agent. Its group is the hardness.
fn read_record(record: &Value) -> Result<Content, RecordError> {
    let database = text(record, "db")?.to_owned();
    let gold = text(record, "gold")?.to_owned();
    let question = text(record, "query")?.to_owned();
    Ok(Content {
        name: None,
        group: optional_text(record, "hardness"),
        task: Task::Sql { question, database: database.clone() },
        setup: Setup::Sql { database, gold: gold.clone() },
        target: Target::Text { answer: gold },
    })
}

/// The published logs of the benchmark's own runner, with ten turns.
const LOGS: &str = "InterCode's published logs, 10 turns";

const PUBLISHED: [PublishedFigure; 8] = [
    PublishedFigure {
        metric: SUCCESS_RATE.name,
        formulation: Formulation::Iterative,
        system: "Lumos-I 13B",
        percent: 7.3,
        source: LATER_LISTING,
    },
    figure("GPT-4", 73.7),
    figure("GPT-3.5", 47.3),
    figure("text-davinci-003", 15.6),
    figure("text-bison", 12.9),
    figure("chat-bison", 9.9),
    figure("StarChat", 9.7),
    figure("Vicuna", 6.3),
];

const fn figure(system: &'static str, percent: f64) -> PublishedFigure {
    PublishedFigure {
        metric: SUCCESS_RATE.name,
        formulation: Formulation::TryAgain,
        system,
        percent,
        source: LOGS,
    }
}

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
}
