//! Starts and ends each kind of fault.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use async_nats::jetstream;

use crate::actor::Actor;
use crate::schedule::{Fault, Kind};
use crate::stage::{Stage, WORKERS, descendants};
use crate::support::{block_on, send};
use crate::world::RUNS;

/// How long to wait for the target of a fault, and for a response of the server.
const PATIENCE: Duration = Duration::from_secs(5);

const STREAMS: [&str; 2] = ["lumos-2-work", "lumos-2-results"];
const BUCKETS: [&str; 6] = [
    "KV_lumos-2-runs",
    "KV_lumos-2-workers",
    "KV_lumos-2-owners",
    "KV_lumos-2-status",
    "OBJ_lumos-2-payloads",
    "OBJ_lumos-2-shared",
];

fn pick<T>(of: &[T], detail: u64) -> Option<&T> {
    of.get(usize::try_from(detail % (of.len() as u64).max(1)).unwrap_or(0))
}

impl Stage<'_> {
    /// Returns the run that a fault affects, if it affects only one.
    pub(crate) fn run_of(&self, fault: &Fault) -> Option<usize> {
        let one = matches!(
            fault.kind,
            Kind::KillCoordinator
                | Kind::StopCoordinator
                | Kind::FreezeCoordinator
                | Kind::DamageCheckpoint
                | Kind::LimitCoordinator
        );
        one.then_some(fault.target % RUNS.len())
    }

    fn actor_of(&mut self, fault: &Fault) -> &mut Actor {
        let workers = matches!(
            fault.kind,
            Kind::KillWorker
                | Kind::StopWorker
                | Kind::FreezeWorker
                | Kind::LimitWorker
                | Kind::ReadOnlySpool
        ) || fault.kind == Kind::JumpClock && fault.detail & 1 == 1;
        let index = if workers { RUNS.len() + fault.target % WORKERS } else { fault.target % RUNS.len() };
        &mut self.actors[index]
    }

    /// Starts a fault. Returns its target, or why there is nothing to disturb.
    pub(crate) fn begin(&mut self, fault: &Fault) -> Result<String, String> {
        let detail = fault.detail;
        let missing = |what: &str| Err(format!("{what} is not running"));
        match fault.kind {
            Kind::KillCoordinator | Kind::KillWorker => {
                let actor = self.actor_of(fault);
                if !actor.kill() {
                    return missing(&actor.name);
                }
                actor.held += 1;
                Ok(actor.name.clone())
            }
            Kind::StopCoordinator | Kind::StopWorker => {
                let actor = self.actor_of(fault);
                if !actor.stop() {
                    return missing(&actor.name);
                }
                actor.held += 1;
                Ok(actor.name.clone())
            }
            Kind::FreezeCoordinator | Kind::FreezeWorker => {
                let actor = self.actor_of(fault);
                if actor.signal("-STOP") { Ok(actor.name.clone()) } else { missing(&actor.name) }
            }
            Kind::KillServer => {
                self.nats.kill();
                self.nats_held += 1;
                Ok("nats-server".to_owned())
            }
            Kind::FreezeServer => match self.nats.process() {
                Some(process) => {
                    send("-STOP", process);
                    Ok("nats-server".to_owned())
                }
                None => missing("nats-server"),
            },
            Kind::KillDatabase | Kind::FreezeDatabase | Kind::CutDatabase => {
                let Some((server, proxy)) = &mut self.world.database else {
                    return Err("mariadb-server is not installed".to_owned());
                };
                match fault.kind {
                    Kind::KillDatabase => server.kill(),
                    Kind::FreezeDatabase => send("-STOP", server.process()),
                    _ => proxy.cut(true),
                }
                Ok("mariadbd".to_owned())
            }
            Kind::KillDriver => self.browser_process("chromedriver", "-KILL", detail),
            Kind::FreezeDriver => self.browser_process("chromedriver", "-STOP", detail),
            Kind::KillBrowser => self.browser_process("chrom", "-KILL", detail),
            Kind::FreezeBrowser => self.browser_process("chrom", "-STOP", detail),
            Kind::CutNetwork
            | Kind::HoldNetwork
            | Kind::DelayNetwork
            | Kind::TruncateNetwork
            | Kind::FlipBits
            | Kind::SendTwice => Ok(self.disturb_network(fault)),
            Kind::FullRunFolder | Kind::FullStore | Kind::FullSpool => {
                let disk = disk_of(fault.kind);
                self.disks.get(disk).ok_or("a small file system cannot be mounted here")?.fill();
                Ok("48 MiB".to_owned())
            }
            Kind::ReadOnlyRunFolder | Kind::ReadOnlyStore | Kind::ReadOnlySpool => self.make_read_only(fault),
            Kind::DeleteStream | Kind::PurgeStream => self.administrate(fault, &STREAMS),
            Kind::DeleteBucket | Kind::PurgeBucket => self.administrate(fault, &BUCKETS),
            Kind::DeleteConsumer => self.administrate(fault, &STREAMS),
            Kind::DamageCheckpoint => {
                let checkpoint = self.checkpoint(RUNS[fault.target % RUNS.len()]);
                let actor = self.actor_of(fault);
                if !actor.kill() {
                    return missing(&actor.name);
                }
                actor.held += 1;
                Ok(damage(&checkpoint, detail))
            }
            Kind::LimitCoordinator | Kind::LimitWorker => {
                let actor = self.actor_of(fault);
                if !actor.kill() {
                    return missing(&actor.name);
                }
                let limit = (150 + detail % 500) << 20;
                actor.limit = Some(limit);
                Ok(format!("{} with {} MiB", actor.name, limit >> 20))
            }
            Kind::JumpClock => {
                let name = self.actor_of(fault).name.clone();
                let actor = self.actors.iter().find(|actor| actor.name == name).expect("unknown actor");
                if !self.has_clock(actor) {
                    return Err(
                        "the clock cannot be set (libfaketime is missing, or a browser would inherit it)"
                            .to_owned(),
                    );
                }
                let seconds = [45, -45, 3600, -3600, 30 * 86_400, -30 * 86_400];
                let seconds = *pick(&seconds, detail >> 8).expect("no offsets");
                self.set_clock(&name, seconds);
                Ok(format!("{name} by {seconds:+} s"))
            }
        }
    }

    /// Ends an active fault.
    pub(crate) fn end(&mut self, fault: &Fault) {
        match fault.kind {
            Kind::KillCoordinator
            | Kind::KillWorker
            | Kind::StopCoordinator
            | Kind::StopWorker
            | Kind::DamageCheckpoint => self.actor_of(fault).held -= 1,
            Kind::FreezeCoordinator | Kind::FreezeWorker => {
                self.actor_of(fault).signal("-CONT");
            }
            Kind::KillServer => self.nats_held -= 1,
            Kind::FreezeServer => {
                if let Some(process) = self.nats.process() {
                    send("-CONT", process);
                }
            }
            Kind::KillDatabase | Kind::FreezeDatabase | Kind::CutDatabase => {
                if let Some((server, proxy)) = &mut self.world.database {
                    match fault.kind {
                        Kind::KillDatabase => server.start_again(),
                        Kind::FreezeDatabase => send("-CONT", server.process()),
                        _ => proxy.cut(false),
                    }
                }
            }
            Kind::FreezeDriver | Kind::FreezeBrowser => {
                for (process, name) in descendants(&self.workers()) {
                    if name.starts_with("chrom") {
                        send("-CONT", process);
                    }
                }
            }
            Kind::CutNetwork | Kind::HoldNetwork | Kind::DelayNetwork | Kind::FlipBits | Kind::SendTwice => {
                if let Some(proxy) = pick(&self.proxies, fault.detail) {
                    proxy.calm();
                }
            }
            Kind::FullRunFolder | Kind::FullStore | Kind::FullSpool => {
                self.disks[disk_of(fault.kind)].free();
            }
            Kind::ReadOnlyRunFolder | Kind::ReadOnlyStore | Kind::ReadOnlySpool => {
                self.disks[disk_of(fault.kind)].read_only(false);
                if fault.kind == Kind::ReadOnlyStore {
                    // After a storage error the server disables JetStream until it is restarted.
                    self.nats.kill();
                }
            }
            Kind::LimitCoordinator | Kind::LimitWorker => {
                let actor = self.actor_of(fault);
                actor.limit = None;
                actor.kill();
            }
            Kind::JumpClock => {
                // Some clocks keep the offset.
                if fault.detail & 2 == 2 {
                    let name = self.actor_of(fault).name.clone();
                    self.set_clock(&name, 0);
                }
            }
            Kind::KillDriver
            | Kind::KillBrowser
            | Kind::TruncateNetwork
            | Kind::DeleteStream
            | Kind::PurgeStream
            | Kind::DeleteConsumer
            | Kind::DeleteBucket
            | Kind::PurgeBucket => {}
        }
    }

    /// Whether the server responds to a JetStream request.
    pub(crate) fn server_answers(&self) -> bool {
        block_on(async {
            let asked = async {
                let client = async_nats::connect(self.nats.url()).await.ok()?;
                client.request("$JS.API.INFO", "".into()).await.ok()
            };
            tokio::time::timeout(PATIENCE, asked).await.ok().flatten().is_some()
        })
    }

    /// Saves the state of streams and consumers, for debugging a round that hangs.
    pub(crate) fn note_server(&self) {
        let asked = block_on(async {
            let asked = tokio::time::timeout(PATIENCE, standing(&self.nats.url())).await;
            asked.unwrap_or_else(|_| vec!["the server does not respond".to_owned()])
        });
        let _ = fs::write(self.folder.join("streams.txt"), asked.join("\n"));
    }

    fn workers(&self) -> Vec<u32> {
        self.actors[RUNS.len()..].iter().filter_map(|actor| Some(actor.process.as_ref()?.id())).collect()
    }

    /// Signals one of the processes started by workers. Waits for one to start.
    fn browser_process(&self, starts: &str, name: &str, detail: u64) -> Result<String, String> {
        let began = Instant::now();
        while began.elapsed() < PATIENCE {
            let all = descendants(&self.workers());
            let driver = starts == "chromedriver";
            let fitting = |(_, name): &&(u32, String)| {
                name.starts_with(starts) && name.starts_with("chromedriver") == driver
            };
            let fitting: Vec<_> = all.iter().filter(fitting).collect();
            if let Some((process, found)) = pick(&fitting, detail) {
                send(name, *process);
                return Ok(format!("{found}, one of {}", fitting.len()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        Err("no browser was started".to_owned())
    }

    fn disturb_network(&self, fault: &Fault) -> String {
        let detail = fault.detail;
        let proxy = pick(&self.proxies, detail).expect("no proxies");
        let whose = match detail % self.proxies.len() as u64 {
            0 => "the coordinators".to_owned(),
            worker => format!("worker-{}", worker - 1),
        };
        let detail = detail >> 8;
        match fault.kind {
            Kind::CutNetwork => proxy.cut(true),
            Kind::HoldNetwork => proxy.hold(true),
            Kind::DelayNetwork => proxy.delay(Duration::from_millis(50 + detail % 400)),
            Kind::TruncateNetwork => proxy.cut_after(1 + detail % 20_000),
            Kind::SendTwice => proxy.send_twice(1 + detail % 8),
            _ => {
                let flips: Vec<u64> =
                    (0..1 + detail % 4).map(|index| (detail >> (8 * index)) % 30_000).collect();
                proxy.flip_after(&flips);
            }
        }
        whose
    }

    fn make_read_only(&mut self, fault: &Fault) -> Result<String, String> {
        if self.disks.is_empty() {
            return Err("a small file system cannot be mounted here".to_owned());
        }
        let restarted = fault.detail & 1 == 1;
        if restarted {
            if fault.kind == Kind::ReadOnlyStore {
                self.nats.kill();
            } else {
                self.actor_of(fault).kill();
            }
        }
        self.disks[disk_of(fault.kind)].read_only(true);
        Ok(if restarted { "process restarted" } else { "process running" }.to_owned())
    }

    /// Performs an administrative action on the server, and retries while it cannot be reached.
    fn administrate(&self, fault: &Fault, names: &[&str]) -> Result<String, String> {
        let began = Instant::now();
        let name = *pick(names, fault.detail).expect("no names");
        loop {
            let done = block_on(async {
                let done =
                    tokio::time::timeout(PATIENCE, administer(&self.nats.url(), fault.kind, name)).await;
                done.map_err(|_| "the server does not respond".to_owned())?
            });
            match done {
                Err(_) if began.elapsed() < PATIENCE => std::thread::sleep(Duration::from_millis(50)),
                done => return done,
            }
        }
    }
}

/// Returns the streams, their subjects and their consumers, as described by the server.
async fn standing(url: &str) -> Vec<String> {
    let Ok(client) = async_nats::connect(url).await else { return vec!["no connection".to_owned()] };
    let mut texts = Vec::new();
    for name in STREAMS.iter().chain(&BUCKETS) {
        let all = r#"{"subjects_filter":">"}"#;
        for (question, body) in
            [(format!("$JS.API.STREAM.INFO.{name}"), all), (format!("$JS.API.CONSUMER.LIST.{name}"), "")]
        {
            let answer = client.request(question.clone(), body.into()).await;
            let answer = answer.map_or_else(
                |error| error.to_string(),
                |message| String::from_utf8_lossy(&message.payload).into_owned(),
            );
            texts.push(format!("{question}: {answer}"));
        }
    }
    texts
}

async fn administer(url: &str, kind: Kind, name: &str) -> Result<String, String> {
    let text = |error: &dyn std::fmt::Display| format!("{name}: {error}");
    let client = async_nats::connect(url).await.map_err(|error| text(&error))?;
    let context = jetstream::new(client);
    match kind {
        Kind::DeleteStream | Kind::DeleteBucket => {
            context.delete_stream(name).await.map_err(|error| text(&error))?;
        }
        Kind::DeleteConsumer => {
            let stream = context.get_stream(name).await.map_err(|error| text(&error))?;
            let names: Vec<String> = futures::TryStreamExt::try_collect(stream.consumer_names())
                .await
                .map_err(|error| text(&error))?;
            let consumer = names.first().ok_or_else(|| format!("{name} has no consumer"))?;
            stream.delete_consumer(consumer).await.map_err(|error| text(&error))?;
        }
        _ => {
            let stream = context.get_stream(name).await.map_err(|error| text(&error))?;
            stream.purge().await.map_err(|error| text(&error))?;
        }
    }
    Ok(name.to_owned())
}

/// Returns the disk that a fault affects.
fn disk_of(kind: Kind) -> usize {
    match kind {
        Kind::FullRunFolder | Kind::ReadOnlyRunFolder => 0,
        Kind::FullStore | Kind::ReadOnlyStore => 1,
        _ => 2,
    }
}

/// Damages one file of a checkpoint, or both copies in every fourth case. Returns a description.
fn damage(checkpoint: &Path, detail: u64) -> String {
    let mut files: Vec<PathBuf> = if detail & 3 == 3 {
        ["journal", "db"].iter().map(|name| checkpoint.join(name)).collect()
    } else {
        let entries = fs::read_dir(checkpoint).into_iter().flatten().flatten();
        let mut all: Vec<_> = entries.map(|entry| entry.path()).filter(|path| path.is_file()).collect();
        all.sort();
        pick(&all, detail >> 2).cloned().into_iter().collect()
    };
    files.retain(|file| file.is_file());
    let mut done = Vec::new();
    for (index, file) in files.iter().enumerate() {
        let detail = detail >> (10 + 20 * index);
        let Ok(mut bytes) = fs::read(file) else { continue };
        let place = usize::try_from(detail >> 2).unwrap_or(0) % bytes.len().max(1);
        let how = match detail & 3 {
            0 if !bytes.is_empty() => {
                bytes[place] ^= 1;
                format!("bit flipped at {place}")
            }
            1 => {
                bytes.truncate(place);
                format!("cut off at {place}")
            }
            2 => {
                let end = (place + 4096).min(bytes.len());
                bytes[place..end].fill(0);
                format!("zeroed from {place} to {end}")
            }
            _ => {
                fs::remove_file(file).unwrap();
                done.push(format!("{} deleted", file_name(file)));
                continue;
            }
        };
        fs::write(file, bytes).unwrap();
        done.push(format!("{} {how}", file_name(file)));
    }
    if done.is_empty() { "nothing was recorded yet".to_owned() } else { done.join(", ") }
}

fn file_name(file: &Path) -> String {
    file.file_name().unwrap_or_default().to_string_lossy().into_owned()
}
