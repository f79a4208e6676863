//! Marks the browsers of this process and kills those of processes that were killed.
//!
//! A pool has its own folder with a file that stays locked as long as the pool exists; the system releases
//! the lock when the process ends for any reason. Drivers have the folder's path in their environment, and
//! browsers in their command lines. A pool checks the folders of other pools when it is created and before it
//! starts a browser: if the file can be locked, the owner has ended, and the processes of that folder are
//! killed.

use std::fs::{self, File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

/// Environment variable of drivers and their browsers: the path of the pool's folder.
pub(super) const MARK: &str = "LUMOS_BROWSERS_OF";
/// Name of the locked file.
const LOCKED: &str = "owner";
/// Maximum time to wait for killed processes to exit.
const DYING: Duration = Duration::from_secs(5);
/// Maximum time to wait for another process that is cleaning up. A stopped process (SIGSTOP) keeps its lock.
const GATE: Duration = Duration::from_secs(15);

/// The folder of a pool. Dropping it removes the folder.
#[derive(Debug)]
pub(super) struct Owner {
    base: PathBuf,
    folder: tempfile::TempDir,
    _locked: File,
}

impl Owner {
    /// Kills the browsers that killed processes left below `base`, and creates a folder for this pool there.
    /// Blocks.
    pub(super) fn new(base: &Path) -> io::Result<Self> {
        private_folder(base)?;
        // Serialized, so that no other process sees a folder before its file is locked.
        let _gate = enter(base, GATE)?;
        sweep(base)?;
        let folder = tempfile::Builder::new().prefix("pool-").tempdir_in(base)?;
        let locked = File::create(folder.path().join(LOCKED))?;
        locked.lock()?;
        Ok(Self { base: base.to_owned(), folder, _locked: locked })
    }

    /// Kills the browsers of processes that were killed in the meantime. Blocks.
    pub(super) fn end_leftovers(&self) {
        if let Err(error) = enter(&self.base, GATE).and_then(|_gate| sweep(&self.base)) {
            tracing::debug!(%error, "failed to end browsers left by other processes");
        }
    }

    /// Returns the value of the variable [`MARK`].
    pub(super) fn mark(&self) -> &Path {
        self.folder.path()
    }

    /// Creates a folder for one session.
    pub(super) fn session(&self) -> io::Result<tempfile::TempDir> {
        tempfile::Builder::new().prefix("session-").tempdir_in(self.folder.path())
    }
}

/// Locks the `gate` file of a folder. Fails after `patience`.
fn enter(base: &Path, patience: Duration) -> io::Result<File> {
    let gate = File::create(base.join("gate"))?;
    let until = Instant::now() + patience;
    loop {
        match gate.try_lock() {
            Ok(()) => return Ok(gate),
            Err(TryLockError::Error(error)) => return Err(error),
            Err(TryLockError::WouldBlock) if Instant::now() < until => {
                thread::sleep(Duration::from_millis(20));
            }
            Err(TryLockError::WouldBlock) => {
                let held = format!(
                    "{} is locked by another process; hint: list the process with `fuser {0}`",
                    base.join("gate").display()
                );
                return Err(io::Error::new(io::ErrorKind::TimedOut, held));
            }
        }
    }
}

/// Creates the folder with access for this user only.
#[cfg(unix)]
fn private_folder(base: &Path) -> io::Result<()> {
    use std::os::unix::fs::{DirBuilderExt, MetadataExt};
    fs::DirBuilder::new().recursive(true).mode(0o700).create(base)?;
    // Another user could have created the folder as an attack.
    if fs::symlink_metadata(base)?.uid() != rustix::process::geteuid().as_raw() {
        return Err(io::Error::other(format!("{} belongs to another user", base.display())));
    }
    Ok(())
}

/// Creates the folder.
#[cfg(not(unix))]
fn private_folder(base: &Path) -> io::Result<()> {
    fs::create_dir_all(base)
}

/// Kills the processes of folders without an owner and removes the folders.
fn sweep(base: &Path) -> io::Result<()> {
    let mut dead: Vec<PathBuf> = Vec::new();
    let mut held = Vec::new();
    for entry in fs::read_dir(base)? {
        let path = entry?.path();
        if !path.is_dir() {
            continue;
        }
        match File::open(path.join(LOCKED)).map(|file| (file.try_lock(), file)) {
            Ok((Err(TryLockError::WouldBlock), _)) => {}
            Ok((_, file)) => {
                held.push(file);
                dead.push(path);
            }
            // The process was killed before it created the file.
            Err(_) => dead.push(path),
        }
    }
    if dead.is_empty() {
        return Ok(());
    }
    let until = Instant::now() + DYING;
    let mut ended = 0;
    loop {
        let left = processes::of(&dead);
        if left.is_empty() || Instant::now() > until {
            break;
        }
        ended = ended.max(left.len());
        left.iter().for_each(processes::Process::kill);
        thread::sleep(Duration::from_millis(20));
    }
    if ended > 0 {
        tracing::warn!(processes = ended, "ended browsers left by a killed process");
    }
    for folder in dead {
        if let Err(error) = fs::remove_dir_all(&folder) {
            tracing::debug!(folder = %folder.display(), %error, "failed to remove a browser's folder");
        }
    }
    Ok(())
}

#[cfg(target_os = "linux")]
mod processes {
    use std::fs;
    use std::path::{Path, PathBuf};

    use rustix::process::{Pid, Signal, getpgrp, kill_process, kill_process_group};

    use super::MARK;

    /// A process of one of the folders.
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Process {
        id: Pid,
        group: Option<Pid>,
    }

    impl Process {
        /// Kills its group, and the process itself in case it left the group.
        pub(super) fn kill(&self) {
            if let Some(group) = self.group.filter(|group| *group != getpgrp()) {
                let _ = kill_process_group(group, Signal::KILL);
            }
            let _ = kill_process(self.id, Signal::KILL);
        }
    }

    /// Returns the running processes that have one of the folders in their environment or command line.
    pub(super) fn of(folders: &[PathBuf]) -> Vec<Process> {
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        let ids = entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
        ids.filter(|id| u32::try_from(*id).is_ok_and(|id| id != std::process::id()))
            .filter_map(|id| read(id, folders))
            .collect()
    }

    fn read(id: i32, folders: &[PathBuf]) -> Option<Process> {
        let file = |name: &str| fs::read(format!("/proc/{id}/{name}")).ok();
        let environment = file("environ").unwrap_or_default();
        let marked = environment
            .split(|byte| *byte == 0)
            .filter_map(|variable| variable.strip_prefix(MARK.as_bytes())?.strip_prefix(b"="))
            .any(|value| folders.iter().any(|folder| folder.as_os_str().as_encoded_bytes() == value));
        let named = || {
            let line = file("cmdline").unwrap_or_default();
            let profile = |argument: &[u8]| {
                let path =
                    argument.strip_prefix(b"--user-data-dir=").and_then(|path| str::from_utf8(path).ok());
                path.is_some_and(|path| folders.iter().any(|folder| Path::new(path).starts_with(folder)))
            };
            line.split(|byte| *byte == 0).any(profile)
        };
        if !(marked || named()) {
            return None;
        }
        let (state, group) = state_and_group(&String::from_utf8_lossy(&file("stat")?))?;
        // Zombies hold no resources.
        (state != 'Z').then_some(Process { id: Pid::from_raw(id)?, group: Pid::from_raw(group) })
    }

    /// Parses state and process group of `/proc/<id>/stat`. The process name in parentheses may contain any
    /// character.
    fn state_and_group(stat: &str) -> Option<(char, i32)> {
        let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
        let state = fields.next()?.chars().next()?;
        Some((state, fields.nth(1)?.parse().ok()?))
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn names_of_processes_may_hold_anything() {
            assert_eq!(state_and_group("7 (a) S (b) R 3 42 42 0"), Some(('R', 42)));
            assert_eq!(state_and_group("7 (a"), None);
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod processes {
    use std::path::PathBuf;

    pub(super) struct Process;

    impl Process {
        pub(super) fn kill(&self) {}
    }

    /// Not supported on other systems.
    pub(super) fn of(_: &[PathBuf]) -> Vec<Process> {
        Vec::new()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    #[test]
    fn what_belongs_to_nobody_is_ended_and_what_belongs_to_somebody_is_not() {
        let base = tempfile::tempdir().unwrap();
        let base = base.path().join("browsers");
        let sleeper = |mark: &Path| {
            let mut command = Command::new("sleep");
            let child = command.arg("600").env(MARK, mark).stdin(Stdio::null()).spawn().unwrap();
            // The kernel shows the environment of a process a moment after its start.
            let environment = format!("/proc/{}/environ", child.id());
            while fs::read(&environment).is_ok_and(|shown| shown.is_empty()) {
                std::thread::yield_now();
            }
            child
        };
        let living = Owner::new(&base).unwrap();
        let mut held = sleeper(living.mark());
        let dead = base.join("pool-dead");
        fs::create_dir_all(dead.join("session-1")).unwrap();
        File::create(dead.join(LOCKED)).unwrap();
        let mut left = sleeper(&dead);
        let another = Owner::new(&base).unwrap();
        assert_ne!(another.mark(), living.mark());
        assert!(!left.wait().unwrap().success());
        assert!(!dead.exists() && living.mark().exists());
        assert!(held.try_wait().unwrap().is_none());
        held.kill().unwrap();
        held.wait().unwrap();
        let folder = living.mark().to_owned();
        drop(living);
        assert!(!folder.exists());
    }

    #[test]
    fn what_is_left_behind_later_is_ended_too() {
        let base = tempfile::tempdir().unwrap();
        let owner = Owner::new(base.path()).unwrap();
        let dead = base.path().join("pool-dead");
        fs::create_dir(&dead).unwrap();
        File::create(dead.join(LOCKED)).unwrap();
        owner.end_leftovers();
        assert!(!dead.exists() && owner.mark().exists());
    }

    #[test]
    fn a_gate_that_a_stopped_process_holds_is_not_waited_for_without_end() {
        let base = tempfile::tempdir().unwrap();
        let held = enter(base.path(), GATE).unwrap();
        let refused = enter(base.path(), Duration::from_millis(100)).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::TimedOut);
        assert!(refused.to_string().contains("is locked by another process"), "{refused}");
        drop(held);
        enter(base.path(), GATE).unwrap();
    }
}
