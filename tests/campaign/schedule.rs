//! Draws the faults of a round from its seed: kind, time, target and duration.

use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};
use serde_json::{Value, json};

/// A kind of fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    KillCoordinator,
    StopCoordinator,
    FreezeCoordinator,
    KillWorker,
    StopWorker,
    FreezeWorker,
    KillServer,
    FreezeServer,
    KillDatabase,
    FreezeDatabase,
    KillDriver,
    FreezeDriver,
    KillBrowser,
    FreezeBrowser,
    CutNetwork,
    HoldNetwork,
    DelayNetwork,
    TruncateNetwork,
    FlipBits,
    SendTwice,
    CutDatabase,
    FullRunFolder,
    FullStore,
    FullSpool,
    ReadOnlyRunFolder,
    ReadOnlyStore,
    ReadOnlySpool,
    DeleteStream,
    PurgeStream,
    DeleteConsumer,
    DeleteBucket,
    PurgeBucket,
    DamageCheckpoint,
    LimitCoordinator,
    LimitWorker,
    JumpClock,
}

impl Kind {
    pub(crate) const ALL: [Self; 36] = [
        Self::KillCoordinator,
        Self::StopCoordinator,
        Self::FreezeCoordinator,
        Self::KillWorker,
        Self::StopWorker,
        Self::FreezeWorker,
        Self::KillServer,
        Self::FreezeServer,
        Self::KillDatabase,
        Self::FreezeDatabase,
        Self::KillDriver,
        Self::FreezeDriver,
        Self::KillBrowser,
        Self::FreezeBrowser,
        Self::CutNetwork,
        Self::HoldNetwork,
        Self::DelayNetwork,
        Self::TruncateNetwork,
        Self::FlipBits,
        Self::SendTwice,
        Self::CutDatabase,
        Self::FullRunFolder,
        Self::FullStore,
        Self::FullSpool,
        Self::ReadOnlyRunFolder,
        Self::ReadOnlyStore,
        Self::ReadOnlySpool,
        Self::DeleteStream,
        Self::PurgeStream,
        Self::DeleteConsumer,
        Self::DeleteBucket,
        Self::PurgeBucket,
        Self::DamageCheckpoint,
        Self::LimitCoordinator,
        Self::LimitWorker,
        Self::JumpClock,
    ];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::KillCoordinator => "kill coordinator",
            Self::StopCoordinator => "SIGTERM coordinator",
            Self::FreezeCoordinator => "freeze coordinator",
            Self::KillWorker => "kill worker",
            Self::StopWorker => "SIGTERM worker",
            Self::FreezeWorker => "freeze worker",
            Self::KillServer => "kill nats-server",
            Self::FreezeServer => "freeze nats-server",
            Self::KillDatabase => "kill mariadbd",
            Self::FreezeDatabase => "freeze mariadbd",
            Self::KillDriver => "kill chromedriver",
            Self::FreezeDriver => "freeze chromedriver",
            Self::KillBrowser => "kill chromium",
            Self::FreezeBrowser => "freeze chromium",
            Self::CutNetwork => "cut network",
            Self::HoldNetwork => "lose all packets",
            Self::DelayNetwork => "delay network",
            Self::TruncateNetwork => "truncate a message",
            Self::FlipBits => "flip bits on the wire",
            Self::SendTwice => "duplicate messages",
            Self::CutDatabase => "cut network to mariadbd",
            Self::FullRunFolder => "full disk: run folder",
            Self::FullStore => "full disk: NATS store",
            Self::FullSpool => "full disk: spool",
            Self::ReadOnlyRunFolder => "read-only disk: run folder",
            Self::ReadOnlyStore => "read-only disk: NATS store",
            Self::ReadOnlySpool => "read-only disk: spool",
            Self::DeleteStream => "delete stream",
            Self::PurgeStream => "purge stream",
            Self::DeleteConsumer => "delete consumer",
            Self::DeleteBucket => "delete bucket",
            Self::PurgeBucket => "purge bucket",
            Self::DamageCheckpoint => "damage checkpoint",
            Self::LimitCoordinator => "limit memory of coordinator",
            Self::LimitWorker => "limit memory of worker",
            Self::JumpClock => "jump clock",
        }
    }

    /// Whether it affects browsers.
    pub(crate) fn needs_browser(self) -> bool {
        matches!(self, Self::KillDriver | Self::FreezeDriver | Self::KillBrowser | Self::FreezeBrowser)
    }

    /// Whether it has no duration: its effect is reverted at once or never.
    fn is_instant(self) -> bool {
        matches!(
            self,
            Self::KillDriver
                | Self::KillBrowser
                | Self::TruncateNetwork
                | Self::DeleteStream
                | Self::PurgeStream
                | Self::DeleteConsumer
                | Self::DeleteBucket
                | Self::PurgeBucket
        )
    }
}

/// A fault of a round.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fault {
    pub(crate) kind: Kind,
    /// Fraction of recorded units at which it starts.
    pub(crate) at: f64,
    /// Duration in seconds.
    pub(crate) seconds: f64,
    /// Index of the target, if there are several.
    pub(crate) target: usize,
    /// Further random bits.
    pub(crate) detail: u64,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(formatter, "{} {} at {:.0} %", self.kind.name(), self.target, 100.0 * self.at)?;
        if self.seconds > 0.0 {
            write!(formatter, " for {:.1} s", self.seconds)?;
        }
        Ok(())
    }
}

impl Fault {
    pub(crate) fn to_json(self) -> Value {
        json!({
            "kind": self.kind.name(),
            "at": self.at,
            "seconds": self.seconds,
            "target": self.target,
            "detail": self.detail,
        })
    }
}

/// A round.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) seed: u64,
    pub(crate) round: u64,
    /// Whether the shop and web pages use a browser.
    pub(crate) browser: bool,
    pub(crate) faults: Vec<Fault>,
}

impl Plan {
    /// Draws a round. The same arguments yield the same round.
    pub(crate) fn draw(seed: u64, round: u64, kinds: &[Kind]) -> Self {
        let mut random = StdRng::seed_from_u64(seed.wrapping_mul(1_000_003).wrapping_add(round));
        let count = random.random_range(3..=5);
        let mut faults: Vec<Fault> = (0..count)
            .map(|_| {
                let kind = *kinds.choose(&mut random).expect("no kinds of faults");
                let lasts: f64 = random.random_range(0.5..4.0);
                Fault {
                    kind,
                    at: random.random_range(0.0..0.8),
                    seconds: if kind.is_instant() { 0.0 } else { lasts },
                    target: random.random_range(0..2),
                    detail: random.random(),
                }
            })
            .collect();
        faults.sort_by(|one, other| one.at.total_cmp(&other.at));
        let browser = random.random_bool(0.15) || faults.iter().any(|fault| fault.kind.needs_browser());
        Self { seed, round, browser, faults }
    }

    pub(crate) fn has(&self, kind: Kind) -> bool {
        self.faults.iter().any(|fault| fault.kind == kind)
    }
}
