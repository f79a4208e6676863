//! Resources and expected results of a mixed run of all benchmarks.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use lumos_benchmarks::DataSource;
use serde_json::Value;

use crate::mariadb::{PASSWORD, Server};
use crate::program::{content, lumos, text};
use crate::proxy::Proxy;
use crate::scripts;

/// Number of items per benchmark.
const ITEMS: &str = "6";

/// The two runs of a round: all benchmarks with scripted agents, and the built-in agent computed by the
/// engine.
pub(crate) const RUNS: [&str; 2] = ["worlds", "engine"];

/// Samples by task, and results.
pub(crate) type Content = (BTreeMap<String, Vec<Value>>, Value);

pub(crate) struct World {
    folder: tempfile::TempDir,
    /// MariaDB, and the proxy through which all clients reach it.
    pub(crate) database: Option<(Server, Proxy)>,
    /// Results of undisturbed runs by name; with a browser, `worlds-browser`.
    expected: BTreeMap<String, Content>,
}

/// Whether a program is on the path.
pub(crate) fn installed(name: &str) -> bool {
    let paths = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&paths).any(|folder| folder.join(name).is_file())
}

pub(crate) fn has_browser() -> bool {
    installed("chromium") && installed("chromedriver")
}

impl World {
    /// Starts the database, writes the agents' replies and performs the undisturbed runs.
    pub(crate) fn new(browser: bool) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let database = Server::start().map(|server| {
            let proxy = Proxy::before(SocketAddr::from(([127, 0, 0, 1], server.port())));
            (server, proxy)
        });
        let mut world = Self { folder, database, expected: BTreeMap::new() };
        if world.database.is_some() {
            let mut import = lumos();
            import.args(["data", "import-sql", "samples", "--to", "mysql"]);
            succeeds(world.set(&mut import));
        }
        let replies = world.folder.path().join("maths.jsonl");
        let mut record = lumos();
        record.args(["run", "--tasks", "gsm8k,svamp", "--model", "builtin:tiny", "--limit", ITEMS]);
        record.args(["--output-path", world.path(), "--name", "maths"]).arg("--record").arg(&replies);
        succeeds(&mut record);
        let maths = fs::read_to_string(&replies).unwrap();
        let pages = scripts::pages(DataSource::Samples);
        let cases = [maths, scripts::questions(), pages, scripts::goals(6), scripts::queries()].concat();
        fs::write(world.cases(), cases).unwrap();
        for (name, browser) in
            [(RUNS[0], false), (RUNS[1], false)].into_iter().chain(browser.then_some((RUNS[0], true)))
        {
            let key = key(name, browser);
            let mut run = lumos();
            run.arg("run").args(world.arguments(name, browser));
            run.args(["--output-path", world.path(), "--name", &key]).env("TMPDIR", world.folder.path());
            succeeds(world.set(&mut run));
            let found = content(&world.folder.path().join(&key));
            for row in found.0.values().flatten() {
                assert!(is_settled(row), "undisturbed: {row:#}");
            }
            world.expected.insert(key, found);
        }
        world
    }

    fn path(&self) -> &str {
        self.folder.path().to_str().unwrap()
    }

    fn cases(&self) -> PathBuf {
        self.folder.path().join("cases.jsonl")
    }

    /// Returns the folder with the files that workers read.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sets a command's environment and working directory.
    pub(crate) fn set<'a>(&self, command: &'a mut Command) -> &'a mut Command {
        // Results contain the commit of the working directory.
        command.current_dir(self.folder.path());
        if let Some((_, proxy)) = &self.database {
            let url = format!("mysql://keeper:{PASSWORD}@127.0.0.1:{}", proxy.address().port());
            command.env("LUMOS_SQL_URL", url);
        }
        command
    }

    /// Returns the arguments of a run.
    pub(crate) fn arguments(&self, name: &str, browser: bool) -> Vec<String> {
        let mut arguments = vec!["--limit", ITEMS, "--retry-on-error", "5"];
        let model = format!("script:{}", self.cases().display());
        if name == RUNS[0] {
            arguments.extend(["--tasks", "all", "--model", &model]);
            if self.database.is_some() {
                arguments.extend(["--tool", "sql=mysql"]);
            }
            if browser {
                arguments.extend(["--browser", "chromedriver"]);
            }
        } else {
            arguments.extend(["--tasks", "gsm8k,svamp", "--formulation", "iterative,onetime"]);
            arguments.extend(["--model", "builtin:tiny"]);
        }
        arguments.into_iter().map(str::to_owned).collect()
    }

    /// Returns the result of the undisturbed run.
    pub(crate) fn expected(&self, name: &str, browser: bool) -> &Content {
        &self.expected[&key(name, browser)]
    }

    /// Number of units of both runs.
    pub(crate) fn units(&self, browser: bool) -> usize {
        RUNS.iter().flat_map(|name| self.expected(name, browser).0.values()).map(Vec::len).sum()
    }
}

fn key(name: &str, browser: bool) -> String {
    if browser && name == RUNS[0] { format!("{name}-browser") } else { name.to_owned() }
}

/// Whether a sample has an outcome.
pub(crate) fn is_settled(row: &Value) -> bool {
    matches!(row["status"].as_str(), Some("answered" | "gave_up"))
}

fn succeeds(command: &mut Command) {
    let (code, stdout, stderr) = text(&command.stdin(Stdio::null()).output().unwrap());
    assert_eq!(code, 0, "{command:?}\n{stdout}\n{stderr}");
}
