//! Describes how the workers of a queue computed the models, grouped by setup.

use std::collections::{BTreeMap, BTreeSet};

use lumos_coordinator::WorkerComputing;
use lumos_tasks::EngineUse;

use crate::display::thousands;

/// Maximum number of hosts named in a line.
const HOSTS: usize = 4;

/// Setup of an engine: its roles, device, data type and mode.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord)]
struct EngineSetup {
    roles: Vec<&'static str>,
    device: String,
    weights: String,
    in_turns: bool,
}

/// Figures of workers with the same setup.
#[derive(Default)]
struct Sum {
    /// Number of workers by host.
    hosts: BTreeMap<String, u64>,
    loads: u64,
    seconds: f64,
}

impl Sum {
    fn add(&mut self, worker: &WorkerComputing) {
        *self.hosts.entry(worker.host.clone()).or_default() += 1;
        for engine in &worker.engines {
            self.loads += engine.loads;
            self.seconds += engine.load_seconds;
        }
    }

    fn workers(&self) -> u64 {
        self.hosts.values().sum()
    }

    fn cost(&self) -> String {
        format!("{} {} in {:.1} s", thousands(self.loads), counted(self.loads, "load"), self.seconds)
    }
}

/// Returns one line per setup, and a line with the sum if there are several.
pub(super) fn lines(workers: &[WorkerComputing]) -> Vec<String> {
    let mut sums: BTreeMap<(Vec<EngineSetup>, u32), Sum> = BTreeMap::new();
    let mut all = Sum::default();
    for worker in workers.iter().filter(|worker| !worker.engines.is_empty()) {
        let mut setups: Vec<EngineSetup> = worker.engines.iter().map(EngineSetup::of).collect();
        setups.sort();
        setups.dedup();
        sums.entry((setups, worker.concurrency)).or_default().add(worker);
        all.add(worker);
    }
    let mut lines: Vec<String> =
        sums.iter().map(|((setups, concurrency), sum)| line(setups, *concurrency, sum)).collect();
    if lines.len() > 1 {
        lines.push(format!("all {} workers together: {}", thousands(all.workers()), all.cost()));
    }
    lines
}

fn line(setups: &[EngineSetup], concurrency: u32, sum: &Sum) -> String {
    let alike: BTreeSet<_> = setups.iter().map(|setup| (&setup.device, &setup.weights)).collect();
    let mut line = match alike.first() {
        Some((device, weights)) if alike.len() == 1 => format!("models computed on {device} in {weights}"),
        _ => {
            let one = |setup: &EngineSetup| {
                format!("{} on {} in {}", setup.roles.join(" and "), setup.device, setup.weights)
            };
            format!("models computed: {}", setups.iter().map(one).collect::<Vec<_>>().join(", "))
        }
    };
    line.push_str(&format!(" by {}", who(&sum.hosts)));
    let turns: Vec<_> = setups.iter().filter(|setup| setup.in_turns).collect();
    if turns.len() == setups.len() {
        line.push_str("; loaded in turns");
    } else if !turns.is_empty() {
        let roles: Vec<_> = turns.iter().flat_map(|setup| &setup.roles).copied().collect();
        line.push_str(&format!("; {} loaded in turns", roles.join(" and ")));
    }
    let each = if sum.workers() == 1 { "" } else { " each" };
    line.push_str(&format!(", {} episodes at once{each}: {}", thousands(u64::from(concurrency)), sum.cost()));
    line
}

/// Formats `3 workers on node-a, 1 on node-b`.
fn who(hosts: &BTreeMap<String, u64>) -> String {
    let mut parts: Vec<String> = hosts
        .iter()
        .take(HOSTS)
        .enumerate()
        .map(|(index, (host, workers))| {
            let noun = if index == 0 { format!(" {}", counted(*workers, "worker")) } else { String::new() };
            format!("{}{noun} on {host}", thousands(*workers))
        })
        .collect();
    let others: u64 = hosts.values().skip(HOSTS).sum();
    if others > 0 {
        let more = (hosts.len() - HOSTS) as u64;
        parts.push(format!("{} on {} more {}", thousands(others), thousands(more), counted(more, "host")));
    }
    parts.join(", ")
}

fn counted(number: u64, noun: &str) -> String {
    if number == 1 { noun.to_owned() } else { format!("{noun}s") }
}

impl EngineSetup {
    fn of(engine: &EngineUse) -> Self {
        Self {
            roles: engine.roles.iter().map(|role| role.name()).collect(),
            device: engine.device.clone(),
            weights: engine.weights.clone().unwrap_or_else(|| "an unknown type".to_owned()),
            in_turns: engine.in_turns,
        }
    }
}

#[cfg(test)]
mod tests {
    use lumos_tasks::{ContentHash, ModelIdentity, Role};

    use super::*;

    fn engine(role: Role, device: &str, in_turns: bool) -> EngineUse {
        let model = ModelIdentity {
            name: role.to_string(),
            content: ContentHash::of_bytes(role.name().as_bytes()),
            dtype: Some("f16".to_owned()),
        };
        EngineUse {
            roles: [role].into(),
            weights: Some("f16".to_owned()),
            in_turns,
            loads: 6,
            load_seconds: 1.25,
            ..EngineUse::new(&model, device.to_owned())
        }
    }

    fn worker(host: &str, engines: Vec<EngineUse>) -> WorkerComputing {
        WorkerComputing { host: host.to_owned(), concurrency: 8, engines, ..WorkerComputing::default() }
    }

    #[test]
    fn workers_that_compute_alike_share_a_line_and_all_are_added_up() {
        let turns = || vec![engine(Role::Planner, "cuda:0", true), engine(Role::Grounder, "cuda:0", true)];
        let apart = vec![engine(Role::Planner, "cuda:0", false), engine(Role::Grounder, "cuda:1", false)];
        let mut workers = vec![worker("a", turns()), worker("a", turns()), worker("b", turns())];
        assert_eq!(
            lines(&workers),
            ["models computed on cuda:0 in f16 by 2 workers on a, 1 on b; loaded in turns, 8 episodes \
              at once each: 36 loads in 7.5 s"]
        );
        workers.extend([worker("c", apart), worker("d", Vec::new())]);
        let lines = lines(&workers);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines.iter().any(|line| {
            line == "models computed: grounder on cuda:1 in f16, planner on cuda:0 in f16 by 1 worker on c, 8 \
                     episodes at once: 12 loads in 2.5 s"
        }));
        assert_eq!(lines[2], "all 4 workers together: 48 loads in 10.0 s");
    }

    #[test]
    fn many_hosts_are_counted() {
        let workers: Vec<_> = (0..100)
            .map(|host| worker(&format!("{host:02}"), vec![engine(Role::Judge, "cpu", false)]))
            .collect();
        let lines = lines(&workers);
        assert!(
            lines[0].contains("1 worker on 00, 1 on 01, 1 on 02, 1 on 03, 96 on 96 more hosts"),
            "{lines:?}"
        );
    }
}
