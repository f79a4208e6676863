//! Participants of a round: server, proxies, disks, coordinators and workers.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::actor::Actor;
use crate::schedule::{Kind, Plan};
use crate::support::disk::SmallDisk;
use crate::support::nats::NatsServer;
use crate::support::proxy::Proxy;
use crate::support::{Lumos, faketime, limited, lumos};
use crate::world::{RUNS, World};

pub(crate) const WORKERS: usize = 2;

/// Lease duration in seconds: short, so that a worker can be frozen for longer than its lease.
const LEASE: &str = "3";

/// Disks of a round, named by their content.
pub(crate) const DISKS: [&str; 3] = ["runs", "store", "spool"];

pub(crate) struct Stage<'a> {
    pub(crate) world: &'a mut World,
    pub(crate) folder: PathBuf,
    /// For temporary files. The path is short, because browsers create sockets in it.
    pub(crate) temporary: tempfile::TempDir,
    browser: bool,
    clocks: Option<PathBuf>,
    /// Declared before the disks, so that the server stops before its storage is unmounted.
    pub(crate) nats: NatsServer,
    /// Number of active faults that prevent a restart of the server.
    pub(crate) nats_held: u32,
    /// Proxies of the coordinators and of each worker.
    pub(crate) proxies: Vec<Proxy>,
    /// The coordinators, followed by the workers.
    pub(crate) actors: Vec<Actor>,
    /// In the order of [`DISKS`]; empty if they cannot be mounted.
    pub(crate) disks: Vec<SmallDisk>,
}

impl<'a> Stage<'a> {
    pub(crate) fn new(world: &'a mut World, plan: &Plan, program: &Path, folder: &Path) -> Self {
        let mut disks = Vec::new();
        for name in DISKS {
            let folder = folder.join(name);
            match SmallDisk::mount(&folder, 48 << 10) {
                Some(disk) => disks.push(disk),
                // The folder exists even without the mount.
                None => fs::set_permissions(&folder, fs::Permissions::from_mode(0o777)).unwrap(),
            }
        }
        let store = folder.join("store");
        // The server must fill the disk instead of limiting itself to the free space.
        let configuration = folder.join("nats.conf");
        fs::write(&configuration, "jetstream { max_file_store: 100GB }\n").unwrap();
        fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
        let (configuration, store) = (configuration.display().to_string(), store.display().to_string());
        let nats = NatsServer::with_arguments(program, &["-c", &configuration, "-sd", &store]);
        let proxies = (0..=WORKERS).map(|_| Proxy::before(nats.address())).collect();
        let mut actors: Vec<_> = RUNS.iter().map(|name| Actor::new(name, folder)).collect();
        actors.extend((0..WORKERS).map(|index| Actor::new(&format!("worker-{index}"), folder)));
        let clocks = faketime().filter(|_| plan.has(Kind::JumpClock));
        let stage = Self {
            world,
            folder: folder.to_owned(),
            temporary: tempfile::tempdir_in("/tmp").unwrap(),
            browser: plan.browser,
            clocks,
            nats,
            nats_held: 0,
            proxies,
            actors,
            disks,
        };
        for actor in &stage.actors {
            stage.set_clock(&actor.name, 0);
        }
        stage
    }

    pub(crate) fn coordinators(&self) -> &[Actor] {
        &self.actors[..RUNS.len()]
    }

    fn clock(&self, name: &str) -> PathBuf {
        self.folder.join(format!("clock-{name}"))
    }

    /// Sets the offset of a process's clock in seconds.
    pub(crate) fn set_clock(&self, name: &str, seconds: i64) {
        fs::write(self.clock(name), format!("{seconds:+}")).unwrap();
    }

    /// Whether a process's clock can be set.
    pub(crate) fn has_clock(&self, actor: &Actor) -> bool {
        // Browsers would inherit the library from their worker.
        self.clocks.is_some() && (actor.is_coordinator() || !self.browser)
    }

    /// Returns the checkpoint folder of a run.
    pub(crate) fn checkpoint(&self, name: &str) -> PathBuf {
        self.run(name).join("checkpoint")
    }

    pub(crate) fn run(&self, name: &str) -> PathBuf {
        self.folder.join(DISKS[0]).join(name)
    }

    /// Starts processes that have ended, unless a fault prevents that.
    pub(crate) fn supervise(&mut self) {
        if self.nats_held == 0 && !self.nats.is_running() {
            self.nats.try_restart();
        }
        let mut actors = std::mem::take(&mut self.actors);
        for (index, actor) in actors.iter_mut().enumerate() {
            actor.supervise(|actor| self.command(index, actor));
        }
        self.actors = actors;
    }

    fn command(&self, index: usize, actor: &Actor) -> Lumos {
        let mut program = actor.limit.map_or_else(lumos, |bytes| limited(bytes >> 10));
        if self.has_clock(actor) {
            let library = self.clocks.as_ref().expect("libfaketime not found");
            program = program
                .env("LD_PRELOAD", library)
                .env("FAKETIME_TIMESTAMP_FILE", self.clock(&actor.name))
                .env("FAKETIME_CACHE_DURATION", "1")
                .env("FAKETIME_DONT_FAKE_MONOTONIC", "1");
        }
        let program = self.world.set(program).env("TMPDIR", self.temporary.path());
        if actor.is_coordinator() {
            let run = program.args("run").args(self.world.arguments(&actor.name, self.browser));
            let run = run.output(&self.folder.join(DISKS[0]), &actor.name);
            run.args(format!(
                "--queue {} --json --lease {LEASE} --grace 5 --stall-warning 5",
                self.proxies[0].url()
            ))
        } else {
            let number = index - RUNS.len();
            let queue = format!("worker --queue {} --concurrency 3", self.proxies[1 + number].url());
            program
                .args(queue)
                .args("--script-latency 150 --stall-limit 30 --stall-warning 5 --grace 5")
                .args("--allow-path")
                .arg(self.world.folder())
                .args("--spool")
                .arg(self.folder.join(DISKS[2]).join(number.to_string()))
                .env("LUMOS_BROWSER_SESSIONS", "1")
        }
    }
}

/// Returns the running descendants of some processes, with their names.
pub(crate) fn descendants(ancestors: &[u32]) -> Vec<(u32, String)> {
    let mut found: Vec<(u32, String)> = Vec::new();
    let all: Vec<(u32, u32, String)> = processes().filter_map(parent_and_name).collect();
    let mut waiting = ancestors.to_vec();
    while let Some(parent) = waiting.pop() {
        for (process, _, name) in all.iter().filter(|(_, of, _)| *of == parent) {
            found.push((*process, name.clone()));
            waiting.push(*process);
        }
    }
    found.sort();
    found
}

/// Returns the processes whose environment contains a folder: those left behind by a killed worker.
pub(crate) fn left_in(folder: &Path) -> Vec<u32> {
    let text = folder.as_os_str().as_encoded_bytes().to_vec();
    let names = |process: &u32| {
        let environment = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
        environment.windows(text.len()).any(|window| window == text)
    };
    processes().filter(names).collect()
}

fn processes() -> impl Iterator<Item = u32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok())
}

fn parent_and_name(process: u32) -> Option<(u32, u32, String)> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    let (start, rest) = stat.rsplit_once(')')?;
    let mut rest = rest.split_whitespace();
    let ended = rest.next()? == "Z";
    let parent = rest.next()?.parse().ok()?;
    (!ended).then(|| (process, parent, start.split_once('(').map_or("", |(_, name)| name).to_owned()))
}
