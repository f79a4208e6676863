//! A local chromedriver in its own process group, which is killed with it.

use std::process::Stdio;

use tokio::io::{AsyncBufReadExt, AsyncRead, BufReader};
use tokio::process::{Child, Command};
use tokio::time::timeout;

use super::error::BrowserFault;
use super::leftovers::{MARK, Owner};
use crate::browser::BrowserSettings;
use crate::process_group::ProcessGroup;

/// Operation named in errors.
const DOING: &str = "starting chromedriver";
/// Output of the driver when it listens. An earlier line names the requested port.
const LISTENS: &str = "started successfully on port ";

/// A running driver. Dropping it kills the driver and its browser and removes their files.
pub(super) struct Driver {
    child: Child,
    group: Option<ProcessGroup>,
    port: u16,
    folder: tempfile::TempDir,
}

impl Driver {
    /// Starts the program and waits until it listens.
    pub(super) async fn start(settings: &BrowserSettings, owner: &Owner) -> Result<Self, BrowserFault> {
        let failed = |error: std::io::Error| {
            BrowserFault::new(DOING, format!("{}: {error}", settings.chromedriver.display()))
        };
        let folder = owner.session().map_err(failed)?;
        let mut command = Command::new(&settings.chromedriver);
        // An exploit that escapes from a page must not find keys and passwords.
        for (name, _) in std::env::vars_os().filter(|(name, _)| is_ours(&name.to_string_lossy())) {
            command.env_remove(name);
        }
        command
            .args(["--port=0", "--allowed-ips=127.0.0.1", "--log-level=WARNING"])
            .env(MARK, owner.mark())
            // Other temporary files of the browser are removed with its folder.
            .env("TMPDIR", folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .kill_on_drop(true);
        #[cfg(unix)]
        command.process_group(0);
        let mut child = command.spawn().map_err(failed)?;
        let group = child.id().and_then(ProcessGroup::of);
        let output = child.stdout.take();
        let mut driver = Self { child, group, port: 0, folder };
        let output = output.ok_or_else(|| BrowserFault::new(DOING, "chromedriver has no standard output"))?;
        driver.port = timeout(settings.start_limit, port(output))
            .await
            .map_err(|_| {
                let seconds = settings.start_limit.as_secs();
                BrowserFault::new(DOING, format!("chromedriver did not listen on a port within {seconds} s"))
            })?
            .ok_or_else(|| BrowserFault::new(DOING, "chromedriver exited before it listened on a port"))?;
        Ok(driver)
    }

    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }

    /// Returns the folder of the browser's profile.
    pub(super) fn profile(&self) -> std::path::PathBuf {
        self.folder.path().join("profile")
    }

    /// Kills the driver, its browser and all their child processes, without waiting for them to exit.
    pub(super) fn kill(&mut self) {
        match self.group.take() {
            Some(group) => group.kill(),
            None => drop(self.child.start_kill()),
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Whether a variable is a setting of this program or of a service that it uses, and may therefore be a
/// secret.
fn is_ours(variable: &str) -> bool {
    ["LUMOS_", "OPENAI_", "WOLFRAM_", "HF_"].iter().any(|prefix| variable.starts_with(prefix))
}

/// Returns the port on which the driver listens. Later output is read and discarded, so that the driver does
/// not block on a full pipe.
async fn port(output: impl AsyncRead + Unpin + Send + 'static) -> Option<u16> {
    let mut lines = BufReader::new(output).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Some((_, rest)) = line.split_once(LISTENS) else { continue };
        let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
        let port = digits.parse().ok().filter(|port| *port != 0)?;
        tokio::spawn(async move {
            let mut output = lines.into_inner();
            let _ = tokio::io::copy(&mut output, &mut tokio::io::sink()).await;
        });
        return Some(port);
    }
    None
}
