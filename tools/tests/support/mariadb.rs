//! A MariaDB server for a test, on a private port, with its data in a temporary folder.

#![allow(dead_code, reason = "each test binary uses a part of it")]

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server, which is killed when it is dropped.
pub(crate) struct Server {
    process: Child,
    daemon: String,
    arguments: Vec<String>,
    port: u16,
    folder: tempfile::TempDir,
}

/// The password of the test's account, which tests search for where it must not appear.
pub(crate) const PASSWORD: &str = "never-shown-4711";

fn program(names: &[&str]) -> Option<String> {
    let folders = ["/usr/sbin", "/usr/bin", "/usr/local/bin", "/usr/local/sbin"];
    let all = folders.iter().flat_map(|folder| names.iter().map(move |name| format!("{folder}/{name}")));
    all.into_iter().find(|path| Path::new(path).exists())
}

impl Server {
    /// Starts a server. If MariaDB is not installed, skips the test and returns `None`.
    pub(crate) fn start() -> Option<Self> {
        Self::with_arguments(&[])
    }

    /// Starts a server with additional arguments.
    pub(crate) fn with_arguments(arguments: &[String]) -> Option<Self> {
        let (Some(install), Some(daemon)) = (program(&["mariadb-install-db"]), program(&["mariadbd"])) else {
            lumos_capabilities::skip(
                lumos_capabilities::Capability::MariaDb,
                "mariadb-server is not installed",
            );
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let install = |attempt: u64| {
            // A failed attempt leaves an unusable folder.
            let _ = std::fs::remove_dir_all(path("data"));
            std::thread::sleep(Duration::from_secs(2 * attempt));
            Command::new(&install)
                .args([
                    "--no-defaults",
                    &format!("--user={}", user()),
                    &format!("--datadir={}", path("data")),
                ])
                .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .status()
                .unwrap()
                .success()
        };
        // The installation occasionally fails while another one is in progress.
        assert!((0..3).any(install), "mariadb-install-db failed");
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        std::fs::write(
            path("start.sql"),
            format!(
                "CREATE USER 'keeper'@'%' IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO 'keeper'@'%' WITH GRANT OPTION;\n"
            ),
        )
        .unwrap();
        let arguments = arguments.to_vec();
        let process = spawn(&daemon, folder.path(), port, &arguments);
        let server = Self { process, daemon, arguments, port, folder };
        server.wait();
        Some(server)
    }

    /// Kills the server and restarts it with the same data. Blocks.
    pub(crate) fn restart(&mut self) {
        self.kill();
        self.start_again();
    }

    /// Kills the server.
    pub(crate) fn kill(&mut self) {
        let _ = self.process.kill();
        self.process.wait().unwrap();
    }

    /// Restarts a killed server with the same data. Blocks.
    pub(crate) fn start_again(&mut self) {
        // The account already exists.
        std::fs::write(self.folder.path().join("start.sql"), "SELECT 1;\n").unwrap();
        self.process = spawn(&self.daemon, self.folder.path(), self.port, &self.arguments);
        self.wait();
    }

    fn wait(&self) {
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(300), "MariaDB did not start");
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the process id, for signals.
    pub(crate) fn process(&self) -> u32 {
        self.process.id()
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL with the account's name and password.
    pub(crate) fn url(&self) -> String {
        self.url_at("127.0.0.1")
    }

    /// Returns the URL with another name of this machine.
    pub(crate) fn url_at(&self, host: &str) -> String {
        format!("mysql://keeper:{PASSWORD}@{host}:{}", self.port)
    }
}

fn user() -> String {
    std::env::var("USER").unwrap_or_else(|_| "root".to_owned())
}

fn spawn(daemon: &str, folder: &Path, port: u16, arguments: &[String]) -> Child {
    let path = |name: &str| folder.join(name).display().to_string();
    Command::new(daemon)
        .args(["--no-defaults", &format!("--user={}", user()), &format!("--datadir={}", path("data"))])
        .args([
            format!("--socket={}", path("s.sock")),
            format!("--port={port}"),
            format!("--pid-file={}", path("pid")),
        ])
        .args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-log-bin", "--local-infile=0"])
        .args(["--lower-case-table-names=1", "--character-set-server=utf8mb4"])
        .args(["--collation-server=utf8mb4_general_ci"])
        .args([
            format!("--secure-file-priv={}", folder.display()),
            format!("--init-file={}", path("start.sql")),
        ])
        .args(arguments)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
