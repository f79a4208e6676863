//! Attacks with SQL statements of a model and with untrusted servers: no statement exceeds its time limit,
//! changes data of others or delays an interrupt, and a server that violates the protocol causes a fault.

use std::path::Path;
use std::time::{Duration, Instant};

use super::rogue_server::{greeting, packet, serve, switch};
use super::sql_agent::{SqlAgent, Tried};
use super::statements::{attacks, long_values};
use super::{is_full, line, watched};
use crate::sql::import;
use crate::support::lumos;
use crate::support::mariadb::{PASSWORD, Server};

/// Time limits of a statement: on SQLite, and on a server including the time to close the session.
const OF_SQLITE: Duration = Duration::from_secs(20);
const OF_A_SERVER: Duration = Duration::from_secs(8);

/// Returns a limit plus a tenth of it.
fn and_a_tenth(bound: Duration) -> Duration {
    bound + bound / 10
}

/// Runs an agent's statements with a tool and returns their results and the peak memory in MiB.
fn tried(agent: &SqlAgent, folder: &Path, tool: &str, url: Option<&str>) -> (Vec<Tried>, u64) {
    let command = agent.command(folder, "attacked").args(format!("--tool sql={tool}"));
    let command = url.iter().fold(command, |command, url| command.env("LUMOS_SQL_URL", url));
    let (_, peak) = watched(0, command);
    let tried = agent.tried();
    assert!(tried.iter().all(|one| one.took.is_some()), "a statement was not answered: {tried:?}");
    (tried, peak)
}

/// Returns the slowest statement and its duration.
fn longest(tried: &[Tried]) -> (Duration, String) {
    let longest = tried.iter().max_by_key(|one| one.took).unwrap();
    (longest.took.unwrap(), longest.shown())
}

/// Returns the statements that fit in a request and in one line, where a reply ends.
fn fitting(statements: Vec<String>) -> impl Iterator<Item = String> {
    statements.into_iter().filter(|one| one.len() < 200_000 && !one.contains('\n'))
}

/// Returns every `every`-th element, or all in the long form.
fn sampled<T>(all: Vec<T>, every: usize) -> Vec<T> {
    let every = if is_full() { 1 } else { every };
    all.into_iter().step_by(every).collect()
}

#[test]
fn v03_no_statement_on_sqlite_takes_longer_than_it_may() {
    let folder = tempfile::tempdir().unwrap();
    let statements: Vec<String> = fitting(long_values()).collect();
    // The first six are those of the table: `instr`, `replace`, `LIKE`, `GLOB`, `trim`.
    let statements: Vec<String> =
        if is_full() { statements } else { statements.into_iter().take(1).collect() };
    let agent = SqlAgent::sending(statements);
    let (tried, peak) = tried(&agent, folder.path(), "sqlite", None);
    if is_full() {
        for one in &tried {
            println!("    {:>6.2} s  {}", one.took.unwrap().as_secs_f64(), &one.shown());
        }
    }
    let (took, statement) = longest(&tried);
    assert!(took <= and_a_tenth(OF_SQLITE), "{took:?}: {statement}");
    let stopped = tried.iter().filter(|one| one.observation.contains("takes too long")).count();
    line(
        "V3",
        &format!("{} statements on long values, SQLite", tried.len()),
        &format!(
            "{stopped} stopped, the longest took {:.1} s of {} s: {statement}; {peak} MiB",
            took.as_secs_f64(),
            OF_SQLITE.as_secs()
        ),
    );
    assert!(stopped >= if is_full() { 5 } else { tried.len() }, "{tried:?}");
}

#[test]
fn v03_hostile_statements_on_sqlite_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let agent = SqlAgent::sending(sampled(fitting(attacks()).collect(), 4));
    let (tried, peak) = tried(&agent, folder.path(), "sqlite", None);
    let passed: Vec<_> = tried.iter().filter(|one| !one.is_refused()).collect();
    assert!(passed.is_empty(), "{passed:?}");
    let (took, statement) = longest(&tried);
    assert!(took <= and_a_tenth(OF_SQLITE), "{took:?}: {statement}");
    let happened = format!("all refused, the longest after {:.1} s; {peak} MiB", took.as_secs_f64());
    line("V3", &format!("{} hostile statements, SQLite", tried.len()), &happened);
}

/// Runs sample items with an agent whose statements take seconds each, and interrupts the run during the
/// first one.
fn interrupted(folder: &Path, signals: usize) -> (Option<i32>, Duration, SqlAgent) {
    let long = long_values().swap_remove(8).replace("i < 100000", "i < 5000");
    let agent = SqlAgent::sending([long]);
    let mut run = agent.command(folder, &format!("interrupted-{signals}")).follow();
    while agent.tried().is_empty() {
        assert!(run.is_running(), "the run ended before its first statement");
        std::thread::sleep(Duration::from_millis(10));
    }
    std::thread::sleep(Duration::from_millis(300));
    assert!(agent.tried()[0].took.is_none(), "the statement is not running");
    let asked = Instant::now();
    run.signal("-INT");
    run.until_said("interrupted: waiting for 1 episode in progress");
    let code = if signals > 1 { run.stop("-INT") } else { run.end() };
    (code, asked.elapsed(), agent)
}

#[test]
fn v03_an_interrupt_during_a_long_statement() {
    let folder = tempfile::tempdir().unwrap();
    let (code, once, agent) = interrupted(folder.path(), 1);
    // The only item is finished, so nothing is outstanding.
    assert!(matches!(code, Some(0 | 130)), "{code:?}");
    let took = agent.tried()[0].took.expect("the statement did not end");
    assert!(took <= and_a_tenth(OF_SQLITE), "{took:?}");
    assert!(once <= and_a_tenth(OF_SQLITE), "{once:?}");
    let (code, twice, agent) = interrupted(folder.path(), 2);
    assert_eq!(code, Some(130));
    assert!(agent.tried()[0].took.is_none(), "the run waited for the statement");
    line(
        "V3",
        "Ctrl-C during a statement on SQLite that takes seconds",
        &format!(
            "one: drained after {:.1} s; two: ended after {:.1} s",
            once.as_secs_f64(),
            twice.as_secs_f64()
        ),
    );
}

#[test]
fn v04_statements_on_mariadb_change_nothing_of_others() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.url();
    import(&url, "samples").ok();
    let named: Vec<String> = [
        "SET @x = 1, PASSWORD = PASSWORD('evil')",
        "SET @x = 1, max_statement_time = 0",
        "SET @x = 1, tmp_disk_table_size = 18446744073709551615",
        "SET @x = 1, sql_mode = 'NO_BACKSLASH_ESCAPES'",
        "SHOW VARIABLES",
        "SHOW PROCESSLIST",
        "SELECT * FROM information_schema.processlist",
        "CREATE TABLE t (a int) PARTITION BY HASH (a) PARTITIONS 8192",
    ]
    .map(str::to_owned)
    .to_vec();
    let count = named.len();
    let agent = SqlAgent::sending(named.into_iter().chain(sampled(fitting(attacks()).collect(), 8)));
    let (tried, _) = std::thread::scope(|scope| {
        // Another run uses the same server meanwhile.
        let honest = scope.spawn(|| {
            let agent = SqlAgent::sending(vec!["SELECT COUNT(*) FROM author".to_owned(); 90]);
            let (tried, _) = self::tried(&agent, &folder.path().join("honest"), "mysql", Some(&url));
            tried
        });
        let attacked = self::tried(&agent, folder.path(), "mysql", Some(&url));
        let honest = honest.join().unwrap();
        assert!(honest.iter().all(|one| one.observation.contains("(6,)")), "{honest:?}");
        attacked
    });
    let passed: Vec<_> = tried.iter().filter(|one| !one.is_refused()).collect();
    assert!(passed.is_empty(), "{passed:?}");
    let (took, statement) = longest(&tried);
    assert!(took <= and_a_tenth(OF_A_SERVER), "{took:?}: {statement}");
    // The password is unchanged: the import is refused because the library is there.
    let again = import(&url, "samples").exits(2).reports(["library"]);
    assert!(!again.stderr.contains("Access denied"), "{again}");
    line(
        "V4",
        &format!("{count} statements of the table and {} others, MariaDB", tried.len() - count),
        &format!(
            "all refused, the longest after {:.1} s; 90 statements of a concurrent run undisturbed",
            took.as_secs_f64()
        ),
    );
}

/// Returns statements whose functions exceed the time limit on MariaDB.
fn costly_on_mariadb() -> Vec<String> {
    let long = "REPEAT('a', 1000000)";
    [
        format!("SELECT INSTR({long}, CONCAT(REPEAT('a', 500000), 'b'))"),
        format!("SELECT LENGTH(REPLACE({long}, CONCAT(REPEAT('a', 500000), 'b'), 'c'))"),
        format!("SELECT {long} LIKE CONCAT(REPEAT('%a', 5000), 'b')"),
        format!("SELECT {long} REGEXP '(a+)+$b'"),
        "SELECT COUNT(*) FROM book a, book b, book c, book d, book e, book f, book g, book h, book i".to_owned(),
        "SELECT SUM(LENGTH(SHA2(REPEAT(a.title, 100000), 512))) FROM book a, book b, book c, book d".to_owned(),
        "WITH RECURSIVE r AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM r) SELECT SUM(a.n * b.n) FROM r a, r b"
            .to_owned(),
        "SELECT LENGTH(GROUP_CONCAT(a.title, b.title, c.title, d.title)) FROM book a, book b, book c, book d, book e, book f, \
         book g"
            .to_owned(),
        "SELECT a.title FROM book a, book b, book c, book d, book e, book f, book g, book h ORDER BY \
         MD5(CONCAT(a.title, b.title, RAND()))"
            .to_owned(),
    ]
    .to_vec()
}

#[test]
fn v04_no_statement_on_mariadb_takes_longer_than_it_may() {
    let Some(server) = Server::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let url = server.url();
    import(&url, "samples").ok();
    let statements = costly_on_mariadb();
    let statements = if is_full() { statements } else { statements.into_iter().take(1).collect() };
    let agent = SqlAgent::sending(statements);
    let (tried, _) = tried(&agent, folder.path(), "mysql", Some(&url));
    for one in &tried {
        println!("    {:>6.2} s  {}", one.took.unwrap().as_secs_f64(), &one.shown());
    }
    let (took, statement) = longest(&tried);
    assert!(took <= and_a_tenth(OF_A_SERVER), "{took:?}: {statement}");
    line(
        "V4",
        &format!("{} statements that take long, MariaDB", tried.len()),
        &format!("the longest took {:.1} s of {} s: {statement}", took.as_secs_f64(), OF_A_SERVER.as_secs()),
    );
}

/// Runs on a server that violates the protocol. Returns the output, the duration and the bytes that the
/// server received.
fn on_a_rogue(folder: &Path, pieces: Vec<Vec<u8>>, number: usize) -> (String, Duration, Vec<u8>) {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let (port, heard) = runtime.block_on(serve(pieces));
    let agent = SqlAgent::sending(["SELECT 1".to_owned()]);
    let name = format!("rogue-{number}");
    let command = agent.command(folder, &name).args(format!("--tool sql=mysql://127.0.0.1:{port}"));
    let command = command.env("LUMOS_SQL_USER", "keeper").env("LUMOS_SQL_PASSWORD", PASSWORD);
    let started = Instant::now();
    let (ended, _) = watched(5, command);
    let took = started.elapsed();
    let shown = lumos().args("show").arg(folder.join(&name)).args("0").ok().stdout;
    let said = format!("{shown}\n{}\n{}", ended.stdout, ended.stderr);
    assert!(said.contains(&format!("mysql://127.0.0.1:{port}")), "the server is not named: {said}");
    assert!(!said.contains(PASSWORD), "{said}");
    let heard = heard.lock().unwrap().clone();
    (said, took, heard)
}

fn holds_the_password(heard: &[u8]) -> bool {
    heard.windows(PASSWORD.len()).any(|window| window == PASSWORD.as_bytes())
}

#[test]
fn v01_a_rogue_server_gets_no_password_in_clear_text() {
    let folder = tempfile::tempdir().unwrap();
    let clear = "mysql_clear_password";
    for (number, pieces) in [
        vec![greeting(clear, false)],
        vec![greeting(clear, true)],
        vec![greeting("mysql_native_password", false), switch(clear)],
        vec![greeting("dialog", false)],
    ]
    .into_iter()
    .enumerate()
    {
        let (said, _, heard) = on_a_rogue(folder.path(), pieces, number);
        assert!(!holds_the_password(&heard), "{said}");
        assert!(
            said.contains("unsupported authentication plugin")
                || said.contains("mysql_cleartext_plugin disabled"),
            "{said}"
        );
    }
    line(
        "V1",
        "4 handshakes that request the password in clear text",
        "refused, nothing sent, the server is named",
    );
}

#[test]
fn v11_a_server_that_breaks_the_protocol_is_a_fault_of_that_server() {
    let folder = tempfile::tempdir().unwrap();
    let plain = || greeting("mysql_native_password", false);
    let ok = || packet(2, &[0, 0, 0, 2, 0, 0, 0]);
    // Three that made the client library panic, one that sends data without end, one that sends nothing.
    let all = [
        vec![plain(), ok(), packet(1, b"")],
        vec![plain(), packet(2, b"\0\xfe")],
        vec![plain(), ok(), packet(1, &[0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff])],
        vec![plain(), ok(), vec![0xff; 1 << 20]],
        vec![Vec::new()],
    ];
    let count = all.len();
    let ended = std::thread::scope(|scope| {
        let folder = folder.path();
        let all = all
            .into_iter()
            .enumerate()
            .map(|(number, pieces)| scope.spawn(move || on_a_rogue(folder, pieces, number)));
        let all: Vec<_> = all.collect();
        all.into_iter().map(|one| one.join().unwrap()).collect::<Vec<_>>()
    });
    for (said, _, _) in &ended {
        assert!(!said.contains("panicked"), "{said}");
    }
    let longest = ended.iter().map(|(_, took, _)| *took).max().unwrap();
    // A silent server is treated like one that restarts: lumos waits for up to a minute.
    assert!(longest < Duration::from_secs(300), "{longest:?}");
    line(
        "V11",
        &format!("{count} servers that break MySQL's protocol"),
        &format!("faults that name the server, no panic, the longest run {:.1} s", longest.as_secs_f64()),
    );
}
