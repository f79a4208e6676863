//! Resources and expected results of a mixed run of all benchmarks.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use lumos_benchmarks::DataSource;
use lumos_capabilities::on_path;
use lumos_tasks::Formulation;
use serde_json::Value;

use crate::support::mariadb::{PASSWORD, Server};
use crate::support::proxy::Proxy;
use crate::support::{Lumos, content, lumos, scripts};

/// Number of items per benchmark.
const ITEMS: usize = 6;

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

pub(crate) fn has_browser() -> bool {
    on_path("chromium").is_some() && on_path("chromedriver").is_some()
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
            world.set(lumos().args("data import-sql samples --to mysql")).ok();
        }
        let replies = world.folder().join("maths.jsonl");
        let record = format!("run --tasks gsm8k,svamp --model builtin:tiny --limit {ITEMS}");
        lumos().args(record).output(world.folder(), "maths").args("--record").arg(&replies).ok();
        let questions = |name| scripts::questions(name, &DataSource::Samples, usize::MAX, "samples");
        let cases = [
            fs::read_to_string(&replies).unwrap(),
            questions("hotpotqa"),
            questions("strategyqa"),
            scripts::pages(DataSource::Samples),
            scripts::goals(None, ITEMS),
            scripts::queries(&DataSource::Samples, &[Formulation::Iterative]),
        ];
        fs::write(world.cases(), cases.concat()).unwrap();
        for (name, browser) in
            [(RUNS[0], false), (RUNS[1], false)].into_iter().chain(browser.then_some((RUNS[0], true)))
        {
            let key = key(name, browser);
            let run = lumos().args("run").args(world.arguments(name, browser)).output(world.folder(), &key);
            world.set(run).env("TMPDIR", world.folder()).ok();
            let found = content(&world.folder.path().join(&key));
            for row in found.0.values().flatten() {
                assert!(is_settled(row), "undisturbed: {row:#}");
            }
            world.expected.insert(key, found);
        }
        world
    }

    fn cases(&self) -> PathBuf {
        self.folder.path().join("cases.jsonl")
    }

    /// Returns the folder with the files that workers read.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Sets a command's environment and working directory.
    pub(crate) fn set(&self, command: Lumos) -> Lumos {
        // Results contain the commit of the working directory.
        let command = command.within(self.folder());
        let Some((_, proxy)) = &self.database else { return command };
        let url = format!("mysql://keeper:{PASSWORD}@127.0.0.1:{}", proxy.address().port());
        command.env("LUMOS_SQL_URL", url)
    }

    /// Returns the arguments of a run.
    pub(crate) fn arguments(&self, name: &str, browser: bool) -> String {
        let common = format!("--limit {ITEMS} --retry-on-error 5");
        if name != RUNS[0] {
            let tasks = "--tasks gsm8k,svamp --formulation iterative,onetime --model builtin:tiny";
            return format!("{common} {tasks}");
        }
        let sql = if self.database.is_some() { "--tool sql=mysql" } else { "" };
        let browser = if browser { "--browser chromedriver" } else { "" };
        format!("{common} --tasks all --model 'script:{}' {sql} {browser}", self.cases().display())
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
