//! Generated statements on a real server. If the guard interprets quotes and comments differently from the
//! server, the server calls a function that the guard did not detect. `LUMOS_GENERATED=50000` generates
//! 50,000 statements instead of 1,000, and `LUMOS_TEST_SEED` sets the seed.

use lumos_environments::sql::guard;
use lumos_tasks::SqlReply;
use proptest::prelude::Rng as _;
use proptest::test_runner::{RngAlgorithm, TestRng};
use sqlx::Connection;

use super::mariadb::Server;
use super::support::{Episode, query};
use crate::Tools;

/// A call that the guard rejects wherever it detects one. The lock is held until the session ends.
const CANARY: &str = "GET_LOCK('lumos_canary', 0)";
const HOLDER: &str = "SELECT IS_USED_LOCK('lumos_canary')";

/// Parts of quotes, comments and escapes, in the dialects that a server may use.
const NOISE: [&str; 41] = [
    "'",
    "''",
    "\"",
    "\"\"",
    "`",
    "``",
    "\\",
    "\\'",
    "\\\\",
    "--",
    "-- ",
    "--\n",
    "--\t",
    "--\u{1}",
    "--\u{a0}",
    "--\u{2003}",
    "--\u{7f}",
    "#",
    "# x\n",
    "\n",
    "\r",
    "/*",
    "*/",
    "/**/",
    "/* /* */",
    "*/*",
    "/",
    "*",
    ",",
    ";",
    "(",
    ")",
    " ",
    "\u{a0}",
    "\u{b}",
    "\u{c}",
    "N'",
    "_latin1'",
    "x'",
    "1",
    "@`",
];

/// Statements with a canary: the text before and after it.
const STATEMENTS: [(&str, &str); 6] = [
    ("SELECT 1", ""),
    ("SELECT title, 1", " FROM book"),
    ("SELECT 1 FROM book WHERE title = ", " OR 1"),
    ("SET @a = 1", ""),
    ("INSERT INTO loan SELECT 90, 1, 1, '2020-01-01', ", ""),
    ("CREATE TABLE z (a INT DEFAULT 1", ")"),
];

struct Generator(TestRng);

impl Generator {
    fn below(&mut self, bound: usize) -> usize {
        usize::try_from(self.0.next_u64() % bound as u64).unwrap()
    }

    fn noise(&mut self, into: &mut String) {
        for _ in 0..self.below(6) {
            into.push_str(NOISE[self.below(NOISE.len())]);
        }
    }

    fn statement(&mut self) -> String {
        let (before, behind) = STATEMENTS[self.below(STATEMENTS.len())];
        let mut statement = before.to_owned();
        self.noise(&mut statement);
        statement.push_str([", ", " + ", " "][self.below(3)]);
        statement.push_str(CANARY);
        self.noise(&mut statement);
        statement.push_str(behind);
        self.noise(&mut statement);
        statement
    }
}

/// Checks that accepted statements do not take the lock.
pub(crate) async fn canaries(tool: &dyn Tools, server: &Server) {
    const TOGETHER: usize = 50;
    let mut seed = [7; 32];
    seed[..8].copy_from_slice(&lumos_capabilities::seed(1).to_le_bytes());
    let mut generator = Generator(TestRng::from_seed(RngAlgorithm::ChaCha, &seed));
    let session = Episode::open(tool, "library", "SELECT 1").await;
    let (mut generated, mut accepted, mut executed) = (0, Vec::new(), 0);
    let count = std::env::var("LUMOS_GENERATED").map_or(400, |count| count.parse().unwrap());
    while generated < count {
        generated += 1;
        let statement = generator.statement();
        if guard::check(&statement).is_err() {
            continue;
        }
        executed += usize::from(!matches!(session.sql(&statement).await, SqlReply::Error(_)));
        accepted.push(statement);
        if accepted.len() % TOGETHER == 0 {
            let holder = query(server, HOLDER).await;
            let last = &accepted[accepted.len() - TOGETHER..];
            assert_eq!(holder, [""], "one of these statements called {CANARY}: {last:#?}");
        }
    }
    assert_eq!(query(server, HOLDER).await, [""], "one of the last statements called {CANARY}");
    println!("{} of {generated} statements were accepted, {executed} executed", accepted.len());
    assert!(accepted.len() > 100 && executed > 10, "{} accepted, {executed} executed", accepted.len());
    session.close().await;
    the_canary_is_noticed(server).await;
}

/// Checks that the query detects a lock that is held.
async fn the_canary_is_noticed(server: &Server) {
    let options: sqlx::mysql::MySqlConnectOptions = server.url().parse().unwrap();
    let mut connection = sqlx::mysql::MySqlConnection::connect_with(&options).await.unwrap();
    let taken = sqlx::AssertSqlSafe(format!("SELECT {CANARY}"));
    sqlx::raw_sql(taken).fetch_all(&mut connection).await.unwrap();
    assert_ne!(query(server, HOLDER).await, [""]);
    connection.close().await.unwrap();
}
