//! Parses InterCode SQL records: `{"db", "gold", "query", "hardness", "db_tables"}` (upstream
//! `data/sql/spider`). The tables are not shown to the agent.

use lumos_tasks::{Setup, Target, Task};
use serde_json::Value;

use crate::loading::{Content, RecordError, optional_text, text};

/// Parses a record. Its group is the hardness.
pub(super) fn read(record: &Value) -> Result<Content, RecordError> {
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_episode_sees_no_gold_query() {
        let record = json!({
            "db": "zoo", "gold": "SELECT 1", "query": "How many?", "hardness": "easy", "db_tables": {"pen": ["id"]},
        });
        let content = read(&record).unwrap();
        assert_eq!(content.group.as_deref(), Some("easy"));
        assert!(!serde_json::to_string(&content.task).unwrap().contains("SELECT"));
        assert_eq!(read(&json!({ "db": "zoo", "query": "?" })).unwrap_err().field, "gold");
    }
}
