//! A nats-server on a free port, its store in a folder.

use std::fs::Permissions;
use std::io::Write;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A server that is killed when it is dropped.
pub(crate) struct Nats {
    program: PathBuf,
    arguments: Vec<String>,
    pub(crate) port: u16,
    child: Child,
    log: PathBuf,
}

impl Nats {
    /// The server's program; `None`, and a word about it, where there is none.
    pub(crate) fn program(test: &str) -> Option<PathBuf> {
        let program =
            std::env::var_os("LUMOS_NATS_SERVER").map_or_else(|| PathBuf::from("nats-server"), PathBuf::from);
        let found = Command::new(&program).arg("--version").stdout(Stdio::null()).status().is_ok();
        if !found {
            eprintln!("{test}: skipped, there is no nats-server");
        }
        found.then_some(program)
    }

    /// Every generation there is.
    pub(crate) fn programs(test: &str) -> Vec<PathBuf> {
        let current = std::env::var_os("LUMOS_NATS_SERVER_CURRENT").map(PathBuf::from);
        Self::program(test).into_iter().chain(current).collect()
    }

    /// Starts a server that keeps its store below a folder; it can be reached from other network namespaces only if
    /// it is `open`.
    pub(crate) fn start(folder: &Path, open: bool) -> Option<Self> {
        Some(Self::start_program(&Self::program("nats")?, folder, open, &[]))
    }

    pub(crate) fn start_program(program: &Path, folder: &Path, open: bool, arguments: &[&str]) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let store = folder.join("jetstream");
        std::fs::create_dir_all(&store).unwrap();
        // The server may run as somebody else.
        std::fs::set_permissions(folder, Permissions::from_mode(0o755)).unwrap();
        std::fs::set_permissions(&store, Permissions::from_mode(0o777)).unwrap();
        let mut all: Vec<String> = vec!["-js".to_owned(), "-sd".to_owned(), store.display().to_string()];
        all.extend(["-a".to_owned(), if open { "0.0.0.0" } else { "127.0.0.1" }.to_owned()]);
        all.extend(["-p".to_owned(), port.to_string()]);
        all.extend(arguments.iter().map(|argument| (*argument).to_owned()));
        let log = folder.join("nats.log");
        let child = Self::spawn(program, &all, &log);
        let nats = Self { program: program.to_owned(), arguments: all, port, child, log };
        nats.wait();
        nats
    }

    fn spawn(program: &Path, arguments: &[String], log: &Path) -> Child {
        let mut file = std::fs::File::options().create(true).append(true).open(log).unwrap();
        writeln!(file, "started").unwrap();
        as_nobody(program)
            .args(arguments)
            .stdout(Stdio::null())
            .stderr(file)
            .spawn()
            .unwrap_or_else(|error| panic!("{}: {error}", program.display()))
    }

    fn wait(&self) {
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            assert!(began.elapsed() < Duration::from_secs(20), "nats-server does not start:\n{said}");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    pub(crate) fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// kill -9.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Starts it again on the same port and the same store.
    pub(crate) fn restart(&mut self) {
        self.child = Self::spawn(&self.program, &self.arguments, &self.log);
        self.wait();
    }
}

/// The program; without privileges, for what was fetched from outside the distribution does not run as root.
fn as_nobody(program: &Path) -> Command {
    let fetched =
        std::env::var_os("LUMOS_NATS_SERVER_CURRENT").is_some_and(|current| Path::new(&current) == program);
    let root = std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0);
    if !(fetched && root) {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]).arg(program);
    command
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
    }
}
