//! Databases of episodes: isolation, hostile statements and gold queries, on SQLite, and on MariaDB if it is
//! installed (otherwise skipped with a message).

#![cfg(feature = "mysql")]

mod attacks;
mod generated;
mod gold;
mod isolation;
#[path = "../../../../tests/support/mariadb.rs"]
mod mariadb;
mod ownership;
mod rogue;
#[path = "../../../../tests/support/rogue_server.rs"]
mod rogue_server;
#[path = "../../../../tests/support/statements.rs"]
mod statements;
mod support;

use std::time::Duration;

use lumos_environments::sql::LIBRARY;

use crate::Tools as _;
use crate::sessions::sql::{SqlTool, into_mysql, into_sqlite};

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn embedded_databases() {
    let tool = SqlTool::sqlite(None, Some(Duration::from_secs(4))).unwrap();
    isolation::basics(&tool).await;
    isolation::destroyers(&tool).await;
    isolation::large_results(&tool).await;
    attacks::all(&tool, "sqlite").await;
    gold::rejected(&tool).await;
    isolation::basics(&tool).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn no_function_takes_longer_than_a_statement_may() {
    attacks::costly_functions(&SqlTool::sqlite(None, Some(Duration::from_millis(500))).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn databases_on_a_server() {
    let Some(server) = mariadb::Server::start() else { return };
    into_mysql(LIBRARY, &support::settings(&server), false).await.unwrap();
    assert!(into_mysql(LIBRARY, &support::settings(&server), false).await.is_err(), "it is already imported");
    let tool = SqlTool::mysql(support::settings(&server)).unwrap();
    isolation::basics(&tool).await;
    isolation::destroyers(&tool).await;
    isolation::large_results(&tool).await;
    attacks::all(&tool, "mariadb").await;
    generated::canaries(&tool, &server).await;
    gold::rejected(&tool).await;
    isolation::basics(&tool).await;
    isolation::generated_names(&tool).await;
    isolation::written_bytes(&tool).await;
    isolation::accounts(&tool, &server).await;
    let left = support::query(
        &server,
        "SELECT schema_name FROM information_schema.schemata WHERE schema_name LIKE 'lumos%'",
    )
    .await;
    assert!(left.is_empty(), "copies are left: {left:?}");
    let accounts = support::query(&server, "SELECT user FROM mysql.user WHERE user NOT LIKE 'lumos%'").await;
    assert!(!accounts.iter().any(|name| ["evil", "admin"].contains(&name.as_str())), "{accounts:?}");
    tool.shut_down().await;
    assert_eq!(support::made(&server).await, Vec::<String>::new(), "accounts are left after the shutdown");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn gold_queries_are_worth_one_on_both() {
    let Some(data) = lumos_capabilities::shared("data/intercode_sql") else { return };
    let dump = std::fs::read_to_string(data.join("ic_spider_dbs.sql")).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let imported = into_sqlite(&dump, folder.path()).unwrap();
    assert_eq!(imported.len(), 20);
    gold::same_content(folder.path(), &data.join("sqlite"));
    let records = gold::records(&data);
    let embedded = SqlTool::sqlite(Some(folder.path().to_owned()), None).unwrap();
    let on_sqlite = gold::run(&embedded, &records).await;
    gold::report("sqlite", &on_sqlite, 0, 0);
    let Some(server) = mariadb::Server::start() else { return };
    assert_eq!(into_mysql(&dump, &support::settings(&server), false).await.unwrap().len(), 20);
    let remote = SqlTool::mysql(support::settings(&server)).unwrap();
    let on_mariadb = gold::run(&remote, &records).await;
    // Six gold queries are invalid in MariaDB 10.11 (`COUNT (*)`, a table called SHOW). If a query does not
    // define which of equal rows comes first, the server may choose one row for the gold query and another
    // for the same query as an answer.
    gold::report("mariadb", &on_mariadb, 6, 6);
    gold::differences(&records, &on_sqlite, &on_mariadb);
}
