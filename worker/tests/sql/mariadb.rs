//! A MariaDB of the test's own, on a private port, with its data in a temporary folder.

use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A running server; it ends with the value.
pub(crate) struct Server {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

/// The password of the test's account; tests look for it where it must not be.
pub(crate) const PASSWORD: &str = "never-shown-4711";

fn program(names: &[&str]) -> Option<String> {
    let folders = ["/usr/sbin", "/usr/bin", "/usr/local/bin", "/usr/local/sbin"];
    let all = folders.iter().flat_map(|folder| names.iter().map(move |name| format!("{folder}/{name}")));
    all.into_iter().find(|path| Path::new(path).exists())
}

impl Server {
    /// Starts one; `None` (with a note) where MariaDB is not installed.
    pub(crate) fn start() -> Option<Self> {
        let (Some(install), Some(daemon)) = (program(&["mariadb-install-db"]), program(&["mariadbd"])) else {
            println!("skipped: mariadb-server is not installed");
            return None;
        };
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name).display().to_string();
        let user = std::env::var("USER").unwrap_or_else(|_| "root".to_owned());
        let installed = Command::new(install)
            .args(["--no-defaults", &format!("--user={user}"), &format!("--datadir={}", path("data"))])
            .args(["--auth-root-authentication-method=normal", "--skip-test-db"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .unwrap();
        assert!(installed.success());
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let start = path("start.sql");
        std::fs::write(
            &start,
            format!(
                "CREATE USER 'keeper'@'%' IDENTIFIED BY '{PASSWORD}';\nGRANT ALL ON *.* TO 'keeper'@'%' WITH GRANT OPTION;\n"
            ),
        )
        .unwrap();
        let process = Command::new(daemon)
            .args(["--no-defaults", &format!("--user={user}"), &format!("--datadir={}", path("data"))])
            .args([
                format!("--socket={}", path("s.sock")),
                format!("--port={port}"),
                format!("--pid-file={}", path("pid")),
            ])
            .args(["--bind-address=127.0.0.1", "--skip-name-resolve", "--skip-log-bin", "--local-infile=0"])
            .args(["--lower-case-table-names=1", "--character-set-server=utf8mb4"])
            .args(["--collation-server=utf8mb4_general_ci"])
            .args([format!("--secure-file-priv={}", folder.path().display()), format!("--init-file={start}")])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let server = Self { process, port, _folder: folder };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(started.elapsed() < Duration::from_secs(60), "MariaDB does not start");
            std::thread::sleep(Duration::from_millis(50));
        }
        Some(server)
    }

    /// Its address with the account's name and password.
    pub(crate) fn url(&self) -> String {
        format!("mysql://keeper:{PASSWORD}@127.0.0.1:{}", self.port)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
