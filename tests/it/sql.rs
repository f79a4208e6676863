//! InterCode SQL end to end, with an agent that uses the gold queries: on SQLite, and on MariaDB if it is
//! installed (otherwise skipped with a message).

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use lumos_benchmarks::DataSource;
use lumos_tasks::Formulation;
use serde_json::Value;

use crate::followed::Followed;
use crate::support::{expect, lumos, text};

#[path = "../../examples/script_sql/author.rs"]
mod author;
#[path = "../../tools/tests/support/mariadb.rs"]
mod mariadb;

/// Writes the agent's replies to all items of a source.
fn script(source: impl Fn() -> DataSource, cases: &Path) {
    let benchmark = lumos_benchmarks::get("intercode_sql").unwrap();
    let mut written = String::new();
    for formulation in [Formulation::Iterative, Formulation::TryAgain] {
        for item in benchmark.open(source()).unwrap() {
            let case = author::case(benchmark, &item.unwrap(), formulation).unwrap();
            written += &format!("{}\n", serde_json::to_string(&case).unwrap());
        }
    }
    fs::write(cases, written).unwrap();
}

/// Returns the command of a run with the script.
fn command(folder: &Path, name: &str, more: &[&str]) -> Command {
    let mut command = lumos();
    command.args(["run", "--tasks", "intercode_sql", "--formulation", "iterative,try-again", "--name", name]);
    command.args(["--model", &format!("script:{}", folder.join("cases.jsonl").display())]);
    command.args(["--output-path", &folder.display().to_string()]).args(more);
    command
}

/// Numbers of successes and items of a finished run, over both formulations.
fn successes(folder: &Path, name: &str) -> (usize, usize) {
    let run = folder.join(name);
    let files = fs::read_dir(&run).unwrap().map(|entry| entry.unwrap().path());
    let samples = files
        .filter(|path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with("samples_")));
    let rows: Vec<Value> = samples
        .flat_map(|path| fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect::<Vec<_>>())
        .map(|line| serde_json::from_str(&line).unwrap())
        .collect();
    let solved = rows.iter().filter(|row| row["success_rate"].as_f64() == Some(1.0)).count();
    (solved, rows.len())
}

#[test]
fn samples_on_sqlite_interrupted_and_resumed() {
    let folder = tempfile::tempdir().unwrap();
    script(|| DataSource::Samples, &folder.path().join("cases.jsonl"));
    let recorded = folder.path().join("recorded.jsonl").display().to_string();
    let output = command(folder.path(), "whole", &["--record", &recorded]).output().unwrap();
    let (code, stdout, stderr) = text(&output);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert!(stdout.contains("success_rate") && stdout.contains("medium"), "{stdout}");
    assert_eq!(successes(folder.path(), "whole"), (40, 40));
    let (replayed, _) = expect(0, &["replay", &recorded]);
    assert!(replayed.contains("40 passed, 0 failed"), "{replayed}");

    // The run is short. If one ends before it is killed, another one is started.
    let mut names = (0..20).map(|number| format!("broken-{number}"));
    let is_killed = |name: &String| {
        let mut run = command(folder.path(), name, &["--batch-size", "1", "--json"]);
        let mut broken = Followed::start(&mut run);
        broken.until("settled", 1);
        broken.kill()
    };
    let name = names.find(is_killed).expect("every run ended before it was killed");
    let output = command(folder.path(), &name, &["--batch-size", "1"]).output().unwrap();
    let (code, stdout, stderr) = text(&output);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    assert!(stderr.contains(" already settled"), "{stderr}");
    assert_eq!(successes(folder.path(), &name), (40, 40));
}

#[test]
fn a_password_stands_in_no_file_and_no_output() {
    let folder = tempfile::tempdir().unwrap();
    script(|| DataSource::Samples, &folder.path().join("cases.jsonl"));
    let refused = command(folder.path(), "refused", &["--tool", "sql=mysql://keeper:hush-hush@127.0.0.1:1"]);
    let mut refused = refused;
    let (code, stdout, stderr) = text(&refused.output().unwrap());
    assert_eq!(code, 2, "{stdout}\n{stderr}");
    assert!(!format!("{stdout}{stderr}").contains("hush"), "{stderr}");
    assert!(!folder.path().join("refused").exists());

    let Some(server) = mariadb::Server::start() else { return };
    let url = server.url();
    let mut import = lumos();
    import.args(["data", "import-sql", "samples", "--to", "mysql"]).env("LUMOS_SQL_URL", &url);
    let (code, stdout, stderr) = text(&import.output().unwrap());
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let mut run = command(folder.path(), "remote", &["--tool", "sql=mysql"]);
    let (code, out, err) = text(&run.env("LUMOS_SQL_URL", &url).output().unwrap());
    assert_eq!(code, 0, "{out}\n{err}");
    assert_eq!(successes(folder.path(), "remote"), (40, 40));
    assert!(!format!("{stdout}{stderr}{out}{err}").contains(mariadb::PASSWORD));
    let mut waiting = vec![folder.path().join("remote")];
    while let Some(path) = waiting.pop() {
        if path.is_dir() {
            waiting.extend(fs::read_dir(path).unwrap().map(|entry| entry.unwrap().path()));
        } else {
            let content = fs::read(&path).unwrap();
            let secret = mariadb::PASSWORD.as_bytes();
            assert!(!content.windows(secret.len()).any(|window| window == secret), "{}", path.display());
        }
    }
}

/// MariaDB is killed and restarted during a run: every item is answered, and no record contains a generated
/// name.
#[test]
fn a_restart_of_the_database_server_in_mid_run_faults_nothing() {
    let folder = tempfile::tempdir().unwrap();
    script(|| DataSource::Samples, &folder.path().join("cases.jsonl"));
    let Some(mut server) = mariadb::Server::start() else { return };
    let url = server.url();
    let mut import = lumos();
    import.args(["data", "import-sql", "samples", "--to", "mysql"]).env("LUMOS_SQL_URL", &url);
    let (code, stdout, stderr) = text(&import.output().unwrap());
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let mut run = command(folder.path(), "run", &["--tool", "sql=mysql", "--json"]);
    let mut run = Followed::start(run.env("LUMOS_SQL_URL", &url));
    // A reader of the checkpoint could keep the run from opening it.
    run.until("settled", 1);
    server.restart();
    assert_eq!(run.end(), Some(0), "{}", run.said());
    assert_eq!(successes(folder.path(), "run"), (40, 40));
    for entry in fs::read_dir(folder.path().join("run")).unwrap() {
        let path = entry.unwrap().path();
        if path.is_file() {
            let content = fs::read(&path).unwrap();
            assert!(!content.windows(8).any(|window| window == b"lumos_e_"), "{}", path.display());
        }
    }
}

#[test]
fn a_database_server_that_is_away_when_the_run_begins_is_waited_for() {
    let folder = tempfile::tempdir().unwrap();
    script(|| DataSource::Samples, &folder.path().join("cases.jsonl"));
    let Some(mut server) = mariadb::Server::start() else { return };
    let url = server.url();
    let mut import = lumos();
    import.args(["data", "import-sql", "samples", "--to", "mysql"]).env("LUMOS_SQL_URL", &url);
    let (code, stdout, stderr) = text(&import.output().unwrap());
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    server.kill();
    let log = folder.path().join("log");
    let mut run = command(folder.path(), "run", &["--tool", "sql=mysql"]);
    let mut run = run
        .env("LUMOS_SQL_URL", &url)
        .stdout(Stdio::null())
        .stderr(fs::File::create(&log).unwrap())
        .spawn()
        .unwrap();
    let said = || fs::read_to_string(&log).unwrap();
    while !said().contains("cannot reach the database server; retrying for up to 60 s") {
        assert!(run.try_wait().unwrap().is_none(), "the run did not wait: {}", said());
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
    server.start_again();
    let ended = run.wait().unwrap();
    assert_eq!(ended.code(), Some(0), "{}", said());
    assert!(!said().contains("attempt 1"), "no unit faults: {}", said());
    assert_eq!(successes(folder.path(), "run"), (40, 40));
}

#[test]
fn all_items_on_both_databases() {
    let Some(shared) = lumos_capabilities::shared("") else { return };
    let data = shared.join("data");
    let data_text = data.display().to_string();
    let folder = tempfile::tempdir().unwrap();
    let file = data.join("intercode_sql/ic_spider_dev.json");
    script(|| DataSource::File(file.clone()), &folder.path().join("cases.jsonl"));
    let output = command(folder.path(), "sqlite", &["--data", &data_text]).output().unwrap();
    let (code, stdout, stderr) = text(&output);
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    println!("{stdout}");
    assert_eq!(successes(folder.path(), "sqlite"), (2068, 2068));
    let Some(server) = mariadb::Server::start() else { return };
    let dump = data.join("intercode_sql/ic_spider_dbs.sql").display().to_string();
    let mut import = lumos();
    import.args(["data", "import-sql", &dump, "--to", "mysql"]).env("LUMOS_SQL_URL", server.url());
    let (code, stdout, stderr) = text(&import.output().unwrap());
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    let mut run = command(folder.path(), "mariadb", &["--data", &data_text, "--tool", "sql=mysql"]);
    let (code, stdout, stderr) = text(&run.env("LUMOS_SQL_URL", server.url()).output().unwrap());
    println!("{stdout}");
    // Six gold queries are invalid in MariaDB, and a few do not define which of equal rows comes first, so
    // the answer may differ from the gold row. The script has no reply to an error or to a reward below 1.
    assert_eq!(code, 5, "{stdout}\n{stderr}");
    let (solved, items) = successes(folder.path(), "mariadb");
    assert!((2044..=2056).contains(&solved), "{solved}");
    assert_eq!(items, 2068);
}
