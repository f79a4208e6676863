//! Hostile statements: each ends in bounded time with an error for the model.

use std::time::{Duration, Instant};

use lumos_tasks::SqlReply;
use lumos_worker::Tools;

use super::support::Episode;

/// The longest an attack may take: the limit of a statement's time and what it takes to stop it, on a busy machine.
const LONGEST: Duration = Duration::from_secs(30);

/// Statements that both engines must refuse or stop.
fn attacks() -> Vec<String> {
    let twelve = (0..12).map(|number| format!("book b{number}")).collect::<Vec<_>>().join(", ");
    let mut attacks: Vec<String> = [
        "SELECT SLEEP(1000)",
        "SELECT sleep (1000) FROM book",
        "SELECT `SLEEP`(1000)",
        "SELECT/**/SLEEP/**/(1000)",
        "SELECT 1 FROM book WHERE SLEEP(100) = 0",
        "SELECT BENCHMARK(1000000000, MD5('a'))",
        "SELECT LOAD_FILE('/etc/passwd')",
        "SELECT GET_LOCK('a', 1000)",
        "SELECT MASTER_POS_WAIT('a', 1, 1000)",
        "SELECT LOAD_EXTENSION('/tmp/evil.so')",
        "SELECT readfile('/etc/passwd')",
        "SELECT writefile('/tmp/evil', 'a')",
        "SELECT edit('a', 'sh')",
        "SELECT fts3_tokenizer('simple')",
        "SELECT zeroblob(1000000000)",
        "SELECT randomblob(1000000000)",
        "SELECT * FROM book INTO OUTFILE '/tmp/lumos_evil'",
        "SELECT 'a' INTO DUMPFILE '/tmp/lumos_evil'",
        "LOAD DATA INFILE '/etc/passwd' INTO TABLE book",
        "LOAD DATA LOCAL INFILE '/etc/passwd' INTO TABLE book",
        "LOAD XML INFILE '/etc/passwd' INTO TABLE book",
        "ATTACH DATABASE '/tmp/lumos_evil.db' AS evil",
        "ATTACH ':memory:' AS evil",
        "DETACH DATABASE main",
        "VACUUM INTO '/tmp/lumos_evil.db'",
        "VACUUM",
        "PRAGMA writable_schema=ON",
        "PRAGMA max_page_count=1000000000",
        "PRAGMA hard_heap_limit=0",
        "PRAGMA temp_store_directory='/tmp'",
        "SELECT * FROM pragma_function_list",
        "CREATE VIRTUAL TABLE evil USING fts5(a)",
        "CREATE TRIGGER t AFTER INSERT ON book BEGIN SELECT 1; END",
        "CREATE FUNCTION f RETURNS STRING SONAME 'evil.so'",
        "CREATE FUNCTION f() RETURNS INT RETURN SLEEP(1000)",
        "CREATE PROCEDURE p() BEGIN SELECT SLEEP(1000); END",
        "CREATE EVENT e ON SCHEDULE EVERY 1 SECOND DO DROP TABLE library.book",
        "CREATE USER evil IDENTIFIED BY 'evil'",
        "CREATE DATABASE evil",
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'evil')",
        "CREATE TABLE t (a int) ENGINE=FEDERATED CONNECTION='mysql://evil/a/b'",
        "CREATE TABLE t (a int) DATA DIRECTORY='/tmp'",
        "DROP DATABASE library",
        "DROP USER keeper",
        "ALTER USER root IDENTIFIED BY 'evil'",
        "GRANT ALL ON *.* TO CURRENT_USER",
        "REVOKE ALL ON *.* FROM keeper",
        "SET PASSWORD = PASSWORD('evil')",
        "SET GLOBAL max_connections = 1",
        "SET SESSION max_statement_time = 0",
        "SET STATEMENT max_statement_time=0 FOR SELECT SLEEP(1000)",
        "SET @@global.general_log_file = '/tmp/lumos_evil'",
        "SELECT @@datadir",
        "KILL 1",
        "KILL QUERY 1",
        "SHUTDOWN",
        "FLUSH TABLES WITH READ LOCK",
        "FLUSH PRIVILEGES",
        "LOCK TABLES book WRITE",
        "RESET MASTER",
        "CHANGE MASTER TO MASTER_HOST='evil'",
        "INSTALL PLUGIN a SONAME 'evil.so'",
        "INSTALL SONAME 'evil'",
        "SELECT * FROM mysql.user",
        "SELECT * FROM `mysql`.`global_priv`",
        "SELECT * FROM sys.session",
        "UPDATE mysql.user SET password = ''",
        "SHOW GRANTS",
        "SHOW PROCESSLIST",
        "SHOW MASTER STATUS",
        "SELECT 1; DROP TABLE book",
        "SELECT 1;SELECT 2",
        "DROP TABLE loan; -- a\nDROP TABLE book",
        "SELECT '\\'; DROP TABLE book; -- '; SELECT 1",
        "/*!50000 SELECT SLEEP(1000) */",
        "/*M! SELECT SLEEP(1000) */",
        "SELECT /*!50000 SLEEP(1000) */",
        "PREPARE s FROM 'SELECT SLEEP(1000)'",
        "EXECUTE IMMEDIATE 'SELECT SLEEP(1000)'",
        "DO SLEEP(1000)",
        "CALL mysql.p()",
        "HANDLER book OPEN",
        "XA START 'a'",
        "BEGIN NOT ATOMIC SELECT SLEEP(1000); END",
        "BEGIN NOT ATOMIC LOOP SELECT 1",
        "IF 1 THEN SELECT 1",
        "SELECT 1\0; DROP TABLE book",
        "\0",
        "WITH RECURSIVE r(a) AS (SELECT 1 UNION ALL SELECT a + 1 FROM r) SELECT SUM(a), GROUP_CONCAT(a) FROM r, r AS s",
        "SELECT a.book_id, b.book_id FROM book a, book b, book c, book d, book e, book f",
        "INSERT INTO loan SELECT a.book_id * 0 + RAND() * 1e9, 1, 1, '2020-01-01', NULL FROM book a, book b, book c, book d, \
         book e, book f, book g, book h, book i, book j",
        "SELECT (((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((((1",
    ]
    .map(str::to_owned)
    .to_vec();
    attacks.push(format!("SELECT COUNT(*) FROM {twelve} WHERE b0.pages + b11.pages > 0"));
    attacks.push(format!(
        "SELECT DISTINCT b0.title, b1.title, b2.title, b3.title, b4.title, b5.title, b6.title FROM {twelve}"
    ));
    attacks.push(format!("SELECT 1 FROM {twelve} GROUP BY b0.title, b1.title ORDER BY RAND()"));
    attacks.push(format!("SELECT '{}'", "a".repeat(10 << 20)));
    attacks.push(format!("SELECT {}", "(".repeat(50_000)));
    attacks.push(format!("SELECT 1 {}", "UNION ALL SELECT 1 ".repeat(20_000)));
    attacks
}

/// Runs all attacks, each in an episode of its own; others see nothing of it.
pub(crate) async fn all(tool: &dyn Tools, engine: &str) {
    let attacks = attacks();
    assert!(attacks.len() >= 60);
    let mut longest = (Duration::ZERO, String::new());
    let mut passed = Vec::new();
    for attack in &attacks {
        let shown: String = attack.chars().take(90).collect();
        let episode = Episode::open(tool, "library", "SELECT COUNT(*) FROM book").await;
        let started = Instant::now();
        let reply = tokio::time::timeout(LONGEST, episode.sql(attack)).await;
        let took = started.elapsed();
        match reply {
            Err(_) => panic!("{engine}: {shown:?} takes longer than {LONGEST:?}"),
            Ok(SqlReply::Error(_)) => {}
            Ok(other) => passed.push(format!("{shown:?}: {other:?}")),
        }
        if took > longest.0 {
            longest = (took, shown.clone());
        }
        // The session still answers, with its own tables as they were.
        assert_eq!(episode.rows("SELECT COUNT(*) FROM book").await, "[(10,)]", "{shown:?}");
        episode.close().await;
    }
    println!(
        "{engine}: {} attacks end with an error, the longest after {:?}: {:?}",
        attacks.len(),
        longest.0,
        longest.1
    );
    assert!(passed.is_empty(), "{engine}: not refused:\n{}", passed.join("\n"));
    for file in ["/tmp/lumos_evil", "/tmp/lumos_evil.db"] {
        assert!(!std::path::Path::new(file).exists(), "{file} was written");
    }
}
