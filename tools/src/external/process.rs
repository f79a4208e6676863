//! A program that answers calls over its standard streams: in its own process group, with a restricted environment and a
//! limit of its memory, killed with this process.
//!
//! ```text
//! thread `tool process`                    caller
//!   start the program ── pipes ──────────▶ write a line, read a line, …
//!   wait for its end ◀── kill the group ── dropped, timed out, or a bad reply
//!   kill what is left of the group
//!   reap it ── status ───────────────────▶ message of a fault
//! ```
//!
//! The thread lives as long as the program: Linux signals a program whose parent *thread* has ended, and threads of the
//! runtime may end earlier.

use std::collections::VecDeque;
use std::io;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncBufRead, AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::sync::oneshot;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::command::{CommandLine, HashedCommand};
use super::message::quoted;
use crate::process_group::ProcessGroup;

/// Bytes of standard error that are kept for messages.
const KEPT: usize = 2048;
/// Characters of them in a message.
const SHOWN: usize = 400;
/// Time limit for the end of a program that closed its output, or that was killed.
const ENDING: Duration = Duration::from_secs(2);

/// A running program. Dropping it kills its process group.
pub(super) struct ToolProcess {
    pub(super) input: ChildStdin,
    pub(super) output: BufReader<ChildStdout>,
    pub(super) watched: Watched,
}

/// A program's end and its messages. Dropping it kills the program.
pub(super) struct Watched {
    group: Arc<Mutex<Option<ProcessGroup>>>,
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
    tail: Arc<Mutex<VecDeque<u8>>>,
    reading: AbortOnDropHandle<()>,
    /// `HOME` and `TMPDIR` of the program.
    _home: tempfile::TempDir,
}

/// What the thread of a program passes on.
struct Pipes {
    input: std::process::ChildStdin,
    output: std::process::ChildStdout,
    errors: std::process::ChildStderr,
}

impl ToolProcess {
    /// Starts a program. `memory` limits its address space, in bytes.
    ///
    /// # Errors
    /// A message if it cannot be started, or its files have changed.
    pub(super) async fn start(command: &HashedCommand, memory: Option<u64>) -> Result<Self, String> {
        command.check().await?;
        let started = Self::start_unchecked(&command.line, memory).await;
        started.map_err(|error| format!("failed to start {}: {error}", command.line.program))
    }

    async fn start_unchecked(command: &CommandLine, memory: Option<u64>) -> io::Result<Self> {
        let home = tempfile::Builder::new().prefix("lumos-tool-").tempdir()?;
        let command = prepared(command, home.path(), memory);
        let group = Arc::new(Mutex::new(None));
        let (started, pipes) = oneshot::channel();
        let (ending, ended) = oneshot::channel();
        let of_thread = Arc::clone(&group);
        std::thread::Builder::new()
            .name("tool process".to_owned())
            .spawn(move || supervise(command, &of_thread, started, ending))?;
        let pipes = pipes.await.map_err(|_| io::Error::other("the thread of the program ended"))??;
        let errors = ChildStderr::from_std(pipes.errors)?;
        let tail = Arc::default();
        let reading = AbortOnDropHandle::new(tokio::spawn(keep_tail(errors, Arc::clone(&tail))));
        Ok(Self {
            input: ChildStdin::from_std(pipes.input)?,
            output: BufReader::new(ChildStdout::from_std(pipes.output)?),
            watched: Watched { group, ended, tail, reading, _home: home },
        })
    }

    /// Sends a line and reads the next one, of at most `most` bytes.
    ///
    /// # Errors
    /// A message with the cause and the end of the program's standard error. The process cannot be used afterwards.
    pub(super) async fn exchange(&mut self, request: &[u8], most: usize) -> Result<Vec<u8>, String> {
        // Otherwise the line would be taken for the reply to this request.
        if let Some(Ok(early)) = futures::FutureExt::now_or_never(self.output.fill_buf())
            && !early.is_empty()
        {
            return Err(format!("the program wrote `{}` without a request", quoted(early)));
        }
        let written = async {
            self.input.write_all(request).await?;
            self.input.flush().await
        };
        // Without a reader, the reason is in how the program ended.
        if written.await.is_err() {
            return Err(self.watched.end().await);
        }
        match LineReader::new(&mut self.output, most).next().await {
            Ok(Some(line)) => Ok(line),
            Ok(None) => Err(self.watched.end().await),
            Err(error) => Err(self.watched.with_tail(error.to_string())),
        }
    }
}

impl Watched {
    /// Whether the program is running.
    pub(super) fn is_running(&self) -> bool {
        lock(&self.group).is_some()
    }

    /// Waits until a program that closed its output has ended, and kills it if it does not. Returns a message.
    pub(super) async fn end(&mut self) -> String {
        let ended = self.ended().await.unwrap_or_else(|| "the program closed its output".to_owned());
        self.with_tail(ended)
    }

    /// Returns how a program ended, or kills it if it does not end soon.
    pub(super) async fn ended(&mut self) -> Option<String> {
        let status = match timeout(ENDING, &mut self.ended).await {
            Ok(Ok(Ok(status))) => Some(format!("the program ended ({status})")),
            Ok(Ok(Err(error))) => Some(format!("failed to wait for the program: {error}")),
            Ok(Err(_)) => Some("the program ended".to_owned()),
            Err(_) => None,
        };
        self.kill();
        let _ = timeout(ENDING, &mut self.reading).await;
        status
    }

    /// Adds the end of the program's standard error to a message.
    pub(super) fn with_tail(&self, message: String) -> String {
        let tail: Vec<u8> = lock(&self.tail).iter().copied().collect();
        let text = String::from_utf8_lossy(&tail);
        let count = text.trim().chars().count();
        let last: String = text.trim().chars().skip(count.saturating_sub(SHOWN)).collect();
        if last.is_empty() {
            return message;
        }
        let last =
            last.lines().map(str::trim).filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" | ");
        let last: String = last.chars().map(|one| if one.is_control() { ' ' } else { one }).collect();
        format!("{message}; its last messages: {last}")
    }

    /// Kills the program and its child processes.
    pub(super) fn kill(&self) {
        if let Some(group) = lock(&self.group).as_ref() {
            group.kill();
        }
    }

    /// Kills the program and waits until it has ended, for a bounded time.
    pub(super) async fn stop(mut self) {
        self.kill();
        let _ = timeout(ENDING, &mut self.ended).await;
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts the program and waits for its end.
fn supervise(
    mut command: Command,
    group: &Mutex<Option<ProcessGroup>>,
    started: oneshot::Sender<io::Result<Pipes>>,
    ended: oneshot::Sender<io::Result<ExitStatus>>,
) {
    let mut child = match command.spawn() {
        Ok(child) => child,
        Err(error) => return drop(started.send(Err(error))),
    };
    *lock(group) = ProcessGroup::of(child.id());
    let pipes = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let pipes = match pipes {
        (Some(input), Some(output), Some(errors)) => Ok(Pipes { input, output, errors }),
        _ => Err(io::Error::other("the program has no standard streams")),
    };
    if started.send(pipes).is_err()
        && let Some(group) = lock(group).as_ref()
    {
        group.kill();
    }
    ProcessGroup::wait(child.id());
    let mut group = lock(group);
    // Child processes of the program. Its number is not reused before it is reaped.
    if let Some(group) = group.take() {
        group.kill();
    }
    let status = child.wait();
    drop(group);
    let _ = ended.send(status);
}

/// Sets up a command: no variables of this process except `PATH` and `LANG`, since others may be secrets.
fn prepared(line: &CommandLine, home: &std::path::Path, memory: Option<u64>) -> Command {
    let mut command = Command::new(line.found().unwrap_or_else(|| line.program.clone().into()));
    let variable = |name: &str, usual: &str| std::env::var_os(name).unwrap_or_else(|| usual.into());
    command
        .args(&line.arguments)
        .env_clear()
        .env("PATH", variable("PATH", "/usr/local/bin:/usr/bin:/bin"))
        .env("LANG", variable("LANG", "C.UTF-8"))
        .env("HOME", home)
        .env("TMPDIR", home)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    restrict(&mut command, memory);
    command
}

/// Starts the program in a group of its own, with a memory limit. On Linux, it is killed when this process ends for any
/// reason.
#[cfg(unix)]
fn restrict(command: &mut Command, memory: Option<u64>) {
    use std::os::unix::process::CommandExt;

    use rustix::process::{Resource, Rlimit, setrlimit};

    command.process_group(0);
    let parent = rustix::process::getpid();
    let limits = move || {
        if memory.is_some() {
            setrlimit(Resource::As, Rlimit { current: memory, maximum: memory })?;
        }
        setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
        #[cfg(target_os = "linux")]
        {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            // This process may have ended before the signal was set.
            if rustix::process::getppid() != Some(parent) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
        }
        #[cfg(not(target_os = "linux"))]
        let _ = parent;
        Ok(())
    };
    // SAFETY: the closure makes system calls only. It neither allocates nor takes locks, which another thread may have
    // held when this process was forked.
    unsafe {
        command.pre_exec(limits);
    }
}

#[cfg(not(unix))]
fn restrict(_: &mut Command, _: Option<u64>) {}

/// Reads lines of limited length.
pub(super) struct LineReader<R> {
    output: R,
    most: usize,
    /// The beginning of the next line. It is kept if reading is cancelled.
    line: Vec<u8>,
}

impl<R: AsyncBufRead + Unpin> LineReader<R> {
    /// Reads lines of at most `most` bytes.
    pub(super) fn new(output: R, most: usize) -> Self {
        Self { output, most, line: Vec::new() }
    }

    /// Returns the next line without its end, or `None` at the end of the output. Can be cancelled.
    ///
    /// # Errors
    /// If the line is too long or the output cannot be read.
    pub(super) async fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        loop {
            let available = self.output.fill_buf().await?;
            if available.is_empty() {
                return Ok(None);
            }
            let end = available.iter().position(|byte| *byte == b'\n');
            let part = &available[..end.unwrap_or(available.len())];
            if self.line.len() + part.len() > self.most {
                let message = format!("the reply is longer than {} MiB", self.most >> 20);
                return Err(io::Error::new(io::ErrorKind::InvalidData, message));
            }
            self.line.extend_from_slice(part);
            let read = end.map_or(available.len(), |end| end + 1);
            self.output.consume(read);
            if end.is_some() {
                return Ok(Some(std::mem::take(&mut self.line)));
            }
        }
    }
}

/// Keeps the end of a program's standard error, so that the program does not block on a full pipe.
async fn keep_tail(mut errors: ChildStderr, tail: Arc<Mutex<VecDeque<u8>>>) {
    let mut chunk = [0; 4096];
    while let Ok(count @ 1..) = errors.read(&mut chunk).await {
        let mut tail = lock(&tail);
        tail.extend(&chunk[..count]);
        let excess = tail.len().saturating_sub(KEPT);
        tail.drain(..excess);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
