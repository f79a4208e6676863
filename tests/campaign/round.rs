//! A round: the mixed run, its faults, and the comparison with the undisturbed run.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::compare::{Comparison, compare};
use crate::schedule::{Fault, Kind, Plan};
use crate::stage::{Stage, left_in};
use crate::support::{lumos, send};
use crate::world::{RUNS, World};

/// Time without a recorded outcome after the last fault at which the round counts as hanging.
const HANG: Duration = Duration::from_secs(60);

/// The same with browsers: all slots of a worker share one browser, so that an episode may take minutes on a
/// busy machine.
const HANG_WITH_BROWSERS: Duration = Duration::from_secs(240);

/// Maximum wait for the fraction of units at which a fault starts.
const STEP: Duration = Duration::from_secs(10);

/// Time without a recorded outcome after which a server whose disk was full is checked, and restarted if it
/// does not respond.
const LOOK: Duration = Duration::from_secs(20);

/// Time within which a worker must end on request.
const ENDS: Duration = Duration::from_secs(30);

/// A fault that was injected, or the reason why it was not.
#[derive(Debug)]
pub(crate) struct Injected {
    pub(crate) fault: Fault,
    pub(crate) what: Result<String, String>,
    began: Instant,
    ended: Option<Instant>,
    /// The run it affects, if it affects only one.
    run: Option<usize>,
    /// Time from its end to the next recorded outcome or the end of the run; `None` if that came before.
    pub(crate) recovery: Option<Duration>,
}

/// Result of a round.
#[derive(Debug)]
pub(crate) struct Round {
    pub(crate) plan: Plan,
    pub(crate) server: String,
    pub(crate) seconds: f64,
    pub(crate) units: usize,
    pub(crate) injected: Vec<Injected>,
    pub(crate) comparison: Comparison,
    /// Whether it hung, and the stated reason, if any.
    pub(crate) hang: Option<Option<String>>,
    pub(crate) problems: Vec<String>,
    /// Number of restarts of a server that did not respond after its disk had been full.
    pub(crate) restarts: usize,
    exits: BTreeMap<String, Vec<String>>,
}

impl Round {
    pub(crate) fn is_good(&self) -> bool {
        self.hang.is_none() && self.problems.is_empty() && self.comparison.is_equal()
    }

    pub(crate) fn faults(&self) -> usize {
        self.injected.iter().filter(|injected| injected.what.is_ok()).count()
    }

    pub(crate) fn to_json(&self, began: Instant) -> Value {
        let faults: Vec<_> = self
            .injected
            .iter()
            .map(|one| {
                let mut fault = one.fault.to_json();
                match &one.what {
                    Ok(what) => fault["what"] = json!(what),
                    Err(why) => fault["skipped"] = json!(why),
                }
                let since = |time: Instant| time.saturating_duration_since(began).as_secs_f64();
                fault["began"] = json!(since(one.began));
                fault["ended"] = json!(one.ended.map(since));
                fault["recovery"] = json!(one.recovery.map(|time| time.as_secs_f64()));
                fault
            })
            .collect();
        json!({
            "seed": self.plan.seed,
            "round": self.plan.round,
            "nats_server": self.server,
            "browser": self.plan.browser,
            "seconds": self.seconds,
            "units": self.units,
            "faults": faults,
            "lost": self.comparison.lost,
            "double": self.comparison.double,
            "different": self.comparison.different,
            "hang": self.hang.as_ref().map(|reason| reason.clone().unwrap_or_else(|| "no reason stated".to_owned())),
            "problems": self.problems,
            "nats_server_restarted": self.restarts,
            "exits": self.exits,
        })
    }
}

/// Runs a round in an empty folder.
pub(crate) fn perform(
    world: &mut World,
    plan: &Plan,
    server: (&Path, &str),
    folder: &Path,
) -> (Round, Instant) {
    let units = world.units(plan.browser);
    let mut stage = Stage::new(world, plan, server.0, folder);
    let began = Instant::now();
    let mut drama =
        Drama { changed: began, recorded: 0, next: 0, active: Vec::new(), injected: Vec::new(), restarts: 0 };
    let hang = drama.play(&mut stage, plan, units);
    let finished = Instant::now();
    if hang.is_some() {
        stage.note_server();
    }
    let mut problems = if hang.is_none() { end_workers(&mut stage) } else { Vec::new() };
    recoveries(&mut drama.injected, &stage, hang.is_none().then_some(finished));
    problems.extend(stage.actors.iter().flat_map(|actor| actor.problems.iter().cloned()));
    let damaged = plan.has(Kind::DamageCheckpoint);
    let mut comparison = Comparison::default();
    if hang.is_none() {
        for (index, name) in RUNS.iter().enumerate() {
            let expected = stage.world.expected(name, plan.browser);
            comparison.add(name, compare(expected, &stage.run(name)));
            if !damaged {
                comparison.add_double(name, twice(&stage.coordinators()[index].settled));
            }
            let repaired = lumos().args("repair").arg(stage.run(name)).run();
            if repaired.code != 0 {
                problems.push(repaired.to_string());
            }
        }
    }
    let exits = stage.actors.iter().map(|actor| (actor.name.clone(), actor.exits.clone()));
    let round = Round {
        plan: plan.clone(),
        server: server.1.to_owned(),
        seconds: finished.duration_since(began).as_secs_f64(),
        units,
        exits: exits.filter(|(_, exits)| !exits.is_empty()).collect(),
        injected: drama.injected,
        comparison,
        hang,
        problems,
        restarts: drama.restarts,
    };
    let _ = std::fs::write(folder.join("nats-server.log"), stage.nats.log());
    let temporary = stage.temporary.path().to_owned();
    drop(stage);
    for process in [folder, &temporary].into_iter().flat_map(left_in) {
        send("-KILL", process);
    }
    (round, began)
}

/// Returns units that were reported as recorded more than once.
fn twice(settled: &[(Instant, String)]) -> Vec<String> {
    let mut known = BTreeSet::new();
    settled.iter().filter(|(_, unit)| !known.insert(unit)).map(|(_, unit)| unit.clone()).collect()
}

/// Sends SIGTERM to the workers. Returns violations.
fn end_workers(stage: &mut Stage<'_>) -> Vec<String> {
    let mut problems = Vec::new();
    for actor in &mut stage.actors[RUNS.len()..] {
        actor.stop();
        actor.held += 1;
    }
    let asked = Instant::now();
    while stage.actors.iter().any(|actor| actor.process.is_some()) {
        if asked.elapsed() > ENDS {
            for actor in stage.actors.iter_mut().filter(|actor| actor.process.is_some()) {
                problems.push(format!("{} does not end {} s after SIGTERM", actor.name, ENDS.as_secs()));
                actor.kill();
            }
        }
        stage.supervise();
        std::thread::sleep(Duration::from_millis(20));
    }
    problems
}

/// Determines the time of the next recorded outcome after each fault's end.
fn recoveries(injected: &mut [Injected], stage: &Stage<'_>, finished: Option<Instant>) {
    for one in injected.iter_mut().filter(|one| one.what.is_ok()) {
        let Some(ended) = one.ended else { continue };
        let runs = stage.coordinators().iter().enumerate();
        let runs = runs.filter(|(index, _)| one.run.is_none_or(|run| run == *index));
        let times = runs.flat_map(|(_, actor)| {
            actor.settled.iter().map(|(time, _)| *time).chain(actor.done.filter(|_| one.run.is_some()))
        });
        let next = times.chain(finished).filter(|time| *time >= ended).min();
        one.recovery = next.map(|next| next.duration_since(ended));
    }
}

/// Progress of a round.
struct Drama {
    /// When something was last recorded or a fault last ended.
    changed: Instant,
    recorded: usize,
    /// Index of the next fault.
    next: usize,
    /// Active faults: their index in `injected`, and when they end.
    active: Vec<(usize, Instant)>,
    injected: Vec<Injected>,
    /// Number of restarts of a server that did not respond.
    restarts: usize,
}

impl Drama {
    /// Runs a round to its end. Returns whether it hung, and the stated reason.
    fn play(&mut self, stage: &mut Stage<'_>, plan: &Plan, units: usize) -> Option<Option<String>> {
        let mut written: Vec<u64> = stage.actors.iter().map(|_| 0).collect();
        loop {
            stage.supervise();
            let recorded = stage.coordinators().iter().map(|actor| actor.settled.len()).sum();
            if recorded != self.recorded {
                (self.recorded, self.changed) = (recorded, Instant::now());
                written = stage.actors.iter().map(crate::actor::Actor::written).collect();
            }
            self.end_faults(stage);
            if stage.coordinators().iter().all(|actor| actor.done.is_some()) {
                self.end_all(stage);
                return None;
            }
            let share = recorded as f64 / units as f64;
            while let Some(fault) = plan.faults.get(self.next) {
                let waited = self.active.is_empty() && self.changed.elapsed() > STEP;
                if share < fault.at && !waited {
                    break;
                }
                self.next += 1;
                self.begin(stage, *fault);
            }
            let full = plan.has(Kind::FullStore) && self.active.is_empty();
            if full && self.changed.elapsed() > LOOK && stage.nats_held == 0 && !stage.server_answers() {
                // As recommended in the coordinators' warning.
                stage.nats.kill();
                (self.restarts, self.changed) = (self.restarts + 1, Instant::now());
            }
            let over = self.active.is_empty() && self.next == plan.faults.len();
            let hang = if plan.browser { HANG_WITH_BROWSERS } else { HANG };
            if over && self.changed.elapsed() > hang {
                return Some(stated(stage, &written));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn begin(&mut self, stage: &mut Stage<'_>, mut fault: Fault) {
        // If one run is complete, the fault affects the other.
        if stage.run_of(&fault).is_some_and(|run| stage.coordinators()[run].done.is_some()) {
            fault.target += 1;
        }
        let began = Instant::now();
        let run = stage.run_of(&fault);
        let what = stage.begin(&fault);
        self.changed = Instant::now();
        let until = self.changed + Duration::from_secs_f64(fault.seconds);
        if what.is_ok() {
            self.active.push((self.injected.len(), until));
        }
        self.injected.push(Injected { fault, what, began, ended: None, run, recovery: None });
    }

    fn end_faults(&mut self, stage: &mut Stage<'_>) {
        let now = Instant::now();
        let over: Vec<usize> =
            self.active.iter().filter(|(_, until)| *until <= now).map(|(index, _)| *index).collect();
        self.active.retain(|(_, until)| *until > now);
        for index in over {
            stage.end(&self.injected[index].fault);
            self.changed = Instant::now();
            self.injected[index].ended = Some(self.changed);
        }
    }

    /// Ends the active faults when both runs are complete.
    fn end_all(&mut self, stage: &mut Stage<'_>) {
        for (index, _) in std::mem::take(&mut self.active) {
            stage.end(&self.injected[index].fault);
        }
    }
}

/// Returns the last warning about a wait from a coordinator that is not done.
fn stated(stage: &Stage<'_>, written: &[u64]) -> Option<String> {
    let waiting =
        stage.actors.iter().zip(written).filter(|(actor, _)| actor.is_coordinator() && actor.done.is_none());
    let reasons: Vec<_> = waiting
        .map(|(actor, written)| {
            let said = actor.said_since(*written);
            let reason = said.lines().rev().find(|line| line.contains("waiting for"));
            reason.map(|reason| format!("{}: {reason}", actor.name))
        })
        .collect();
    reasons.into_iter().collect::<Option<Vec<_>>>().map(|reasons| reasons.join("; "))
}
