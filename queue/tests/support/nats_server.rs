//! A real nats-server on a free local port, with its store in a temporary folder.
//!
//! The program is `LUMOS_NATS_SERVER`, or `nats-server` on the path. `LUMOS_NATS_SERVER_CURRENT` names a
//! second server, of another release series. Tests of other crates include this file with `#[path]`.

#![allow(dead_code, unreachable_pub, missing_docs)]

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lumos_capabilities::{Capability, all_variations, on_path, skip, skip_part};
use tempfile::TempDir;

/// Returns the server to test with. If it is not installed, returns `None`, and the test is skipped.
pub fn program() -> Option<PathBuf> {
    let named = std::env::var_os("LUMOS_NATS_SERVER").filter(|name| !name.is_empty()).map(PathBuf::from);
    let found = named.or_else(|| on_path("nats-server"));
    if found.is_none() {
        skip(Capability::Nats, "nats-server not found: put it on the path, or set LUMOS_NATS_SERVER");
    }
    found
}

/// Returns the additional server of another release series.
pub fn current_program() -> Option<PathBuf> {
    let named =
        std::env::var_os("LUMOS_NATS_SERVER_CURRENT").filter(|name| !name.is_empty()).map(PathBuf::from);
    if named.is_none() {
        skip_part(Capability::NatsCurrent, "LUMOS_NATS_SERVER_CURRENT is not set");
    }
    named
}

/// Returns all servers to test with.
pub fn programs() -> Vec<PathBuf> {
    program().into_iter().chain(current_program()).collect()
}

/// Which of the servers a long test runs with by default.
#[derive(Clone, Copy)]
pub enum Release {
    /// The distribution's.
    Installed,
    /// The additional one.
    Current,
}

/// Returns the server for a long test, or all servers with `LUMOS_VARIATIONS=all`. If there is only one, returns that one.
pub fn programs_of(release: Release) -> Vec<PathBuf> {
    let mut all = programs();
    if all_variations() {
        return all;
    }
    match release {
        Release::Installed => all.truncate(1),
        Release::Current => all = all.split_off(all.len().saturating_sub(1)),
    }
    all
}

/// A running server. Killed when dropped.
pub struct NatsServer {
    program: PathBuf,
    arguments: Vec<String>,
    folder: TempDir,
    port: u16,
    child: Option<Child>,
}

impl NatsServer {
    /// Starts a server with JetStream. Returns `None` if it is not installed.
    pub fn start() -> Option<Self> {
        program().map(|program| Self::with_jetstream(&program))
    }

    /// Starts a server with JetStream.
    pub fn with_jetstream(program: &Path) -> Self {
        Self::launch(program, &["-js"], "")
    }

    /// Starts a server without JetStream.
    pub fn without_jetstream(program: &Path) -> Self {
        Self::launch(program, &[], "")
    }

    /// Starts a server with JetStream and additional configuration.
    pub fn configured(program: &Path, configuration: &str) -> Self {
        Self::launch(program, &["-js"], configuration)
    }

    /// Starts a server with JetStream and additional arguments. Its passwords are in its environment.
    pub fn with_arguments(program: &Path, arguments: &[&str]) -> Self {
        let mut all = vec!["-js"];
        all.extend(arguments);
        Self::launch(program, &all, "")
    }

    fn launch(program: &Path, arguments: &[&str], configuration: &str) -> Self {
        let folder = tempfile::tempdir().expect("a temporary folder");
        // The server may run as another user.
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("permissions");
        };
        std::fs::create_dir(folder.path().join("store")).expect("a folder for the store");
        open(folder.path(), 0o755);
        open(&folder.path().join("store"), 0o777);
        let mut arguments: Vec<String> = arguments.iter().map(|one| (*one).to_owned()).collect();
        if !configuration.is_empty() {
            let file = folder.path().join("nats.conf");
            std::fs::write(&file, configuration).expect("a configuration");
            arguments.extend(["-c".to_owned(), file.display().to_string()]);
        }
        let mut server = Self { program: program.to_owned(), arguments, folder, port: 0, child: None };
        // Another process may take the port before the server binds it; then another one is tried.
        for _ in 0..5 {
            server.port = free_port();
            if server.try_restart() {
                return server;
            }
        }
        panic!("{} does not start; its log:\n{}", program.display(), server.log());
    }

    /// Kills the server with SIGKILL.
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// Starts the server again on the same port and store.
    pub fn restart(&mut self) {
        self.kill();
        assert!(self.try_restart(), "the server does not start again; its log:\n{}", self.log());
    }

    /// Returns whether the process is running; it may have exited by itself.
    pub fn is_running(&mut self) -> bool {
        let ended = self.child.as_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
        if ended {
            self.child = None;
        }
        !ended
    }

    /// Starts the server on the same port and store. Returns whether it accepts connections.
    pub fn try_restart(&mut self) -> bool {
        let log = std::fs::OpenOptions::new().create(true).append(true).open(self.log_file()).expect("a log");
        let child =
            without_privileges(&self.program)
                // Later arguments take precedence, so that a test can set another address.
                .args(["-a", "127.0.0.1", "-p", &self.port.to_string(), "-sd"])
                .arg(self.folder.path().join("store"))
                .args(&self.arguments)
                .envs(["COORDINATOR", "WORKER", "OBSERVER"].map(|user| {
                    (format!("LUMOS_{user}_PASSWORD"), format!("pass-of-{}", user.to_lowercase()))
                }))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(log)
                .spawn();
        let Ok(mut child) = child else { panic!("failed to run {}", self.program.display()) };
        let deadline = Instant::now() + Duration::from_secs(120);
        while Instant::now() < deadline {
            if TcpStream::connect_timeout(&self.address(), Duration::from_millis(200)).is_ok() {
                self.child = Some(child);
                return true;
            }
            if child.try_wait().is_ok_and(|status| status.is_some()) {
                return false;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = child.kill();
        let _ = child.wait();
        false
    }

    fn log_file(&self) -> PathBuf {
        self.folder.path().join("log")
    }

    /// Returns the server's log.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.log_file()).unwrap_or_default()
    }

    /// Returns the address of the server.
    pub fn address(&self) -> SocketAddr {
        SocketAddr::from(([127, 0, 0, 1], self.port))
    }

    /// `nats://127.0.0.1:port`.
    pub fn url(&self) -> String {
        format!("nats://{}", self.address())
    }

    /// Returns a folder for files of the test, removed with the server.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Returns the process id, for signals.
    pub fn process(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }
}

/// Returns the command of the program. A program from outside the distribution does not run as root.
fn without_privileges(program: &Path) -> Command {
    let fetched = std::env::var_os("LUMOS_NATS_SERVER_CURRENT").is_some_and(|current| current == program);
    let root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !(fetched && root) {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
    command
}

impl Drop for NatsServer {
    fn drop(&mut self) {
        self.kill();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    listener.local_addr().expect("its address").port()
}
