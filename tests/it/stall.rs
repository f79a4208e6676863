//! A run without a queue reports what it waits for when it makes no progress.

use std::fs;
use std::net::TcpListener;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use lumos_capabilities::{Capability, on_path, skip_part};

use crate::shopping::script;
use crate::support::lumos;

const PATIENCE: Duration = Duration::from_secs(300);

/// A run that is killed when it is dropped.
struct Run {
    child: Child,
    log: std::path::PathBuf,
}

impl Run {
    fn start(folder: &Path, name: &str, environment: &[(&str, &str)], arguments: &[&str]) -> Self {
        let log = folder.join(format!("{name}.log"));
        let mut command: Command = lumos();
        let child = command
            .args(["run", "--output-path", folder.to_str().unwrap(), "--name", name, "--stall-warning", "1"])
            .args(arguments)
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        Self { child, log }
    }

    /// Waits until its output contains a message with this beginning and end.
    fn until_said(&mut self, waits: &str, hint: &str) {
        let began = Instant::now();
        loop {
            let said = fs::read_to_string(&self.log).unwrap();
            let found = said.split(waits).nth(1).is_some_and(|rest| rest.contains(hint));
            if found {
                assert!(said.contains("no progress for") && said.contains("since "), "{said}");
                return;
            }
            assert!(self.child.try_wait().unwrap().is_none(), "the run ended:\n{said}");
            assert!(began.elapsed() < PATIENCE, "timed out waiting for `{waits}` and `{hint}`:\n{said}");
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Starts a server that accepts connections and never responds. Returns its address.
fn silent() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    (listener, address)
}

#[test]
fn a_run_without_a_queue_names_what_it_waits_for() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let (_server, address) = silent();

    let model = format!("openai:plan@http://{address}/v1");
    let arguments = ["--tasks", "svamp", "--model", &model, "--limit", "3"];
    let mut run = Run::start(folder.path(), "server", &[], &arguments);
    run.until_said("waiting for the models and tools of the run to be loaded", "check the servers");
    run.until_said(
        &format!("waiting for replies to 3 episodes: 3 from the model server of {model}"),
        &format!(
            "hint: check that the model server answers: curl http://{address}/v1/models; --time-limit ends"
        ),
    );
    drop(run);

    // The models of the other runs respond at once.
    let cases = path("cases.jsonl");
    script(None, 2, Path::new(&cases));
    let script = format!("script:{cases}");
    let url = format!("mysql://keeper:secret@{address}");
    let arguments = ["--tasks", "intercode_sql", "--model", &script, "--tool", "sql=mysql", "--limit", "2"];
    let mut run = Run::start(folder.path(), "database", &[("LUMOS_SQL_URL", &url)], &arguments);
    run.until_said(
        "waiting for replies to 2 episodes: 2 from the database server of sql=mysql",
        "hint: check that the database server of LUMOS_SQL_URL runs",
    );
    drop(run);

    if on_path("chromium").is_none() {
        skip_part(Capability::Browser, "chromium is not installed");
        return;
    }
    let driver = path("chromedriver");
    fs::write(&driver, "#!/bin/sh\nexec sleep 600\n").unwrap();
    fs::set_permissions(&driver, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let arguments = [
        "--tasks",
        "webshop",
        "--model",
        &script,
        "--tool",
        "rank=bm25",
        "--browser",
        "chromedriver",
        "--limit",
        "2",
    ];
    let environment = [("LUMOS_CHROMEDRIVER", driver.as_str()), ("LUMOS_BROWSER_SESSIONS", "1")];
    let mut run = Run::start(folder.path(), "browser", &environment, &arguments);
    run.until_said(
        "waiting for replies to 2 episodes: 2 from the browser of shop=chromedriver",
        "hint: check the browser: chromedriver --version",
    );
}
