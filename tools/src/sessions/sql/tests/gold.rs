//! Runs the gold queries as answers.

use std::collections::BTreeMap;
use std::path::Path;

use async_trait::async_trait;
use futures::StreamExt;
use lumos_environments::sql::Fetched;
use lumos_tasks::{SqlGrade, SqlReply};
use serde_json::Value;

use super::support::Episode;
use crate::sessions::sql::limits::{INTERRUPTED, OUT_OF_MEMORY, TOO_LONG};
use crate::sessions::sql::{Database, Databases, SqlTool};
use crate::{ToolFault, Tools};

/// Result of a gold query, and its grade as an answer.
pub(crate) struct Outcome {
    pub(crate) reply: SqlReply,
    pub(crate) grade: SqlGrade,
}

/// Returns database and gold query of each record.
pub(crate) fn records(data: &Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(data.join("ic_spider_dev.json")).unwrap();
    let records: Vec<Value> = serde_json::from_str(&text).unwrap();
    let text = |record: &Value, field: &str| record[field].as_str().unwrap().to_owned();
    records.iter().map(|record| (text(record, "db"), text(record, "gold"))).collect()
}

pub(crate) async fn run(tool: &dyn Tools, records: &[(String, String)]) -> Vec<Outcome> {
    let answered = records.iter().map(|(database, gold)| async move {
        // On a busy machine a server may stop a statement that otherwise takes milliseconds.
        for _ in 0..10 {
            let episode = Episode::open(tool, database, gold).await;
            let reply = episode.sql(gold).await;
            let grade = episode.try_submit().await;
            episode.close().await;
            match (reply, grade) {
                (SqlReply::Error(message), _) if message.contains(INTERRUPTED) => {}
                (reply, Ok(grade)) => return Outcome { reply, grade },
                (_, Err(fault)) => eprintln!("{database}: {fault}"),
            }
        }
        panic!("{database}: the server stopped `{gold}` ten times")
    });
    futures::stream::iter(answered).buffered(8).collect().await
}

/// Gold queries pass the same check as the statements of agents. A rejected one is a fault, which is not scored.
pub(crate) async fn rejected(tool: &dyn Tools) {
    for (gold, reason) in [
        ("SELECT SLEEP(100)", "The function SLEEP is refused"),
        ("SELECT 1; DROP TABLE book", "Only one statement at a time is carried out"),
        ("SELECT * FROM mysql.user", "The database mysql is refused"),
        ("SELECT 1 INTO OUTFILE '/tmp/lumos'", "OUTFILE is refused"),
        ("GRANT ALL ON *.* TO evil", "GRANT is not carried out here"),
        ("USE library", "USE is refused"),
    ] {
        let fault = Episode::with_gold(tool, "library", gold).await.err().expect("no fault").to_string();
        assert_eq!(fault, format!("sql: invalid gold query for database `library`: {reason}"), "{gold}");
    }
    // One with a result that is too large is not graded like invalid SQL.
    let gold = "SELECT a.book_id FROM book a, book b, book c, book d, book e";
    let episode = Episode::open(tool, "library", gold).await;
    let fault = episode.try_submit().await.unwrap_err().to_string();
    assert_eq!(fault, "sql: the gold query exceeds the limits: The result has more than 20000 rows");
    episode.close().await;
    // A gold query that writes changes the episode's own copy of the database.
    let gold = "DELETE FROM loan WHERE loan_id = 1";
    for (episode, expected) in [
        (Episode::open(tool, "library", gold).await, "[(11,)]"),
        (Episode::open(tool, "library", "SELECT 1").await, "[(12,)]"),
    ] {
        assert!(!episode.submit().await.corrupt_gold);
        assert_eq!(episode.rows("SELECT COUNT(*) FROM loan").await, expected);
        episode.close().await;
    }
}

/// A database on which every statement fails with the same message.
#[derive(Clone, Copy)]
struct Failing(&'static str);

#[async_trait]
impl Database for Failing {
    async fn run(&mut self, _statement: &str, _writes: bool) -> Result<Fetched, ToolFault> {
        Ok(Fetched::Failed { message: self.0.to_owned() })
    }

    async fn close(&mut self) {}
}

#[async_trait]
impl Databases for Failing {
    async fn open(&self, _name: &str) -> Result<Box<dyn Database>, ToolFault> {
        Ok(Box::new(*self))
    }
}

#[tokio::test]
async fn a_gold_query_that_was_stopped_is_not_scored() {
    for (message, is_scored) in [
        (TOO_LONG, false),
        (OUT_OF_MEMORY, false),
        ("The result has more than 20000 rows", false),
        ("The result is larger than 4194304 bytes", false),
        ("A value of the result is longer than 262144 bytes", false),
        ("string or blob too big", false),
        ("statement too long", false),
        ("The episode has written more than 200000 rows", false),
        ("Statements with more than 200 calls of functions are refused", false),
        ("no such table: t", true),
    ] {
        let tool = SqlTool { databases: Box::new(Failing(message)) };
        let episode = Episode::open(&tool, "library", "SELECT 1").await;
        match episode.try_submit().await {
            Ok(grade) => assert!(is_scored && grade.corrupt_gold, "{message}: {grade:?}"),
            Err(fault) => assert!(!is_scored && fault.to_string().contains(message), "{message}: {fault}"),
        }
    }
}

/// Prints how the gold queries are graded as answers. Asserts the number of queries that the engine rejects,
/// and that at most `open` of the others have a reward below 1.
pub(crate) fn report(engine: &str, outcomes: &[Outcome], no_sql: usize, open: usize) {
    let full = outcomes.iter().filter(|one| one.grade.reward == 1.0).count();
    let same = outcomes.iter().filter(|one| one.grade.is_same).count();
    let empty = outcomes.iter().filter(|one| one.grade.empty_gold).count();
    let corrupt = outcomes.iter().filter(|one| one.grade.corrupt_gold).count();
    println!(
        "{engine}: {} gold queries, {full} worth 1, {same} equal, {empty} empty, {corrupt} fail",
        outcomes.len()
    );
    for one in outcomes.iter().filter(|one| one.grade.reward != 1.0) {
        println!("{engine}: worth {}: {:?}", one.grade.reward, one.reply);
    }
    assert_eq!(corrupt, no_sql, "{engine}");
    let less = outcomes.len() - full - corrupt;
    assert!(less <= open, "{engine}: {less} gold queries are worth less than 1");
}

/// Prints how the results of the gold queries differ between the two engines.
pub(crate) fn differences(records: &[(String, String)], left: &[Outcome], right: &[Outcome]) {
    let mut kinds: BTreeMap<&str, (usize, String)> = BTreeMap::new();
    for (((database, gold), left), right) in records.iter().zip(left).zip(right) {
        let (SqlReply::Rows { rows: one, count: first }, SqlReply::Rows { rows: other, count: second }) =
            (&left.reply, &right.reply)
        else {
            continue;
        };
        let sorted = |rows: &[String]| {
            let mut rows = rows.to_vec();
            rows.sort();
            rows
        };
        let plain = |rows: &[String]| {
            let rows = rows.iter().map(|row| row.replace("Decimal('", "").replace("')", ")"));
            sorted(&rows.collect::<Vec<_>>())
        };
        let kind = match () {
            () if one == other => "equal",
            () if first != second => "other number of rows",
            () if sorted(one) == sorted(other) => "order of rows",
            () if one.iter().any(|row| row.contains("datetime"))
                || other.iter().any(|row| row.contains("datetime")) =>
            {
                "dates are texts"
            }
            () if plain(one) == plain(other) => "Decimal for whole sums",
            () if other.iter().any(|row| row.contains("Decimal")) => "Decimal with its own digits",
            () => "other values",
        };
        let example = format!(
            "{database}: {gold}\n    sqlite  {:.3?}\n    mariadb {:.3?}",
            one.iter().take(2).collect::<Vec<_>>(),
            other.iter().take(2).collect::<Vec<_>>()
        );
        let entry = kinds.entry(kind).or_insert((0, example));
        entry.0 += 1;
    }
    for (kind, (count, example)) in &kinds {
        println!("{count:5} {kind}; {example}");
    }
}

/// Asserts that the imported files have the same content as the given ones.
pub(crate) fn same_content(built: &Path, given: &Path) {
    for entry in std::fs::read_dir(given).unwrap() {
        let path = entry.unwrap().path();
        let (left, right) = (dumped(&path), dumped(&built.join(path.file_name().unwrap())));
        assert!(!left.is_empty());
        assert_eq!(left, right, "{}", path.display());
    }
}

/// Returns the definitions and rows of all tables.
fn dumped(file: &Path) -> Vec<String> {
    let address = format!("file:{}?immutable=1", file.display());
    let flags = rusqlite::OpenFlags::SQLITE_OPEN_READ_ONLY | rusqlite::OpenFlags::SQLITE_OPEN_URI;
    let connection = rusqlite::Connection::open_with_flags(address, flags).unwrap();
    let mut tables =
        connection.prepare("SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name").unwrap();
    let tables: Vec<(String, String)> =
        tables.query_map([], |row| Ok((row.get(0)?, row.get(1)?))).unwrap().map(Result::unwrap).collect();
    let mut all = Vec::new();
    for (name, definition) in tables {
        all.push(definition.split_whitespace().collect::<Vec<_>>().join(" "));
        let mut rows = connection.prepare(&format!("SELECT * FROM `{name}`")).unwrap();
        let columns = rows.column_count();
        let rows = rows
            .query_map([], |row| {
                let cells = (0..columns).map(|column| format!("{:?}", row.get_ref(column).unwrap()));
                Ok(cells.collect::<Vec<_>>().join(", "))
            })
            .unwrap();
        all.extend(rows.map(Result::unwrap));
    }
    all
}
