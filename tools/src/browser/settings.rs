//! Settings of browsers: which browser, number of sessions, and time limits.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use lumos_http::AllowedHosts;
use thiserror::Error;
use url::Url;

/// Driver of the browser: `--browser chromedriver`, or the address of a WebDriver server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BrowserName {
    /// A local `chromedriver` and Chromium, started for each session.
    Chromedriver,
    /// A WebDriver server, such as a Selenium grid: `http://host:4444`.
    Remote(Url),
}

/// An invalid browser name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum UnknownBrowser {
    /// The browser is unknown.
    #[error(
        "unknown browser `{0}`: expected `chromedriver` or the address of a WebDriver server such as \
         http://host:4444"
    )]
    Name(String),
    /// The address may contain a secret, which is not allowed because browser names are written into files.
    /// The message does not quote it.
    #[error(
        "invalid address of a WebDriver server: expected http://host:port without user, password and query"
    )]
    Secret,
}

impl FromStr for BrowserName {
    type Err = UnknownBrowser;

    fn from_str(name: &str) -> Result<Self, UnknownBrowser> {
        if name == "chromedriver" {
            return Ok(Self::Chromedriver);
        }
        if name.contains(['@', '?', '#']) {
            return Err(UnknownBrowser::Secret);
        }
        match Url::parse(name) {
            Ok(url) if url.scheme() == "http" && url.has_host() => Ok(Self::Remote(url)),
            _ => Err(UnknownBrowser::Name(name.to_owned())),
        }
    }
}

impl fmt::Display for BrowserName {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Chromedriver => formatter.write_str("chromedriver"),
            Self::Remote(url) => formatter.write_str(url.as_str().trim_end_matches('/')),
        }
    }
}

/// Settings of browsers.
#[derive(Debug, Clone)]
pub struct BrowserSettings {
    /// Driver of the browsers.
    pub browser: BrowserName,
    /// Hosts that may be visited.
    pub hosts: AllowedHosts,
    /// Host name or address by which remote browsers reach this machine, for sites that it serves itself. Not
    /// needed for local browsers.
    pub own_host: Option<String>,
    /// Maximum number of concurrent sessions. Default: as many as cores and free memory allow.
    pub sessions: Option<usize>,
    /// Number of leases after which a session is replaced by a fresh one.
    pub leases: usize,
    /// Time limit for starting a session.
    pub start_limit: Duration,
    /// Time limit for loading a page.
    pub page_limit: Duration,
    /// Time limit for any other command.
    pub command_limit: Duration,
    /// Width and height of the window, in pixels.
    pub window: [u32; 2],
    /// Path of chromedriver.
    pub chromedriver: PathBuf,
    /// Path of the browser on the driver's machine. Default: an installed headless shell, which has no windows and therefore
    /// starts in a fraction of the time of Chromium; without one, or with another driver than that of `PATH`, found by
    /// the driver.
    pub chromium: Option<PathBuf>,
    /// Folder for the profiles of running sessions, with a subfolder and a lock file for each pool.
    pub folder: PathBuf,
}

impl BrowserSettings {
    /// Returns the default settings: only this machine as allowed host; 100 leases per session; time limits
    /// of 30 s to start, 30 s for a page and 20 s for other commands; windows of 1280 × 1024 pixels;
    /// programs from `PATH`; profiles in the system's temporary folder, or in `/tmp` if that
    /// folder's path is too long for Chromium.
    pub fn new(browser: BrowserName) -> Self {
        let chromium = (browser == BrowserName::Chromedriver).then(headless_shell).flatten();
        Self {
            browser,
            hosts: AllowedHosts::default(),
            own_host: None,
            sessions: None,
            leases: 100,
            start_limit: Duration::from_secs(30),
            page_limit: Duration::from_secs(30),
            command_limit: Duration::from_secs(20),
            window: [1280, 1024],
            chromedriver: PathBuf::from("chromedriver"),
            chromium,
            folder: folder_below(&std::env::temp_dir()),
        }
    }

    /// Returns the default settings with those of the environment: `LUMOS_BROWSER_HOSTS` (comma-separated, in
    /// addition to this machine), `LUMOS_BROWSER_SESSIONS`, `LUMOS_BROWSER_OWN_HOST`, `LUMOS_CHROMEDRIVER`,
    /// `LUMOS_CHROMIUM`.
    ///
    /// # Errors
    /// If one of these is invalid.
    pub fn from_environment(browser: BrowserName) -> Result<Self, String> {
        let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let mut settings = Self::new(browser);
        if let Some(hosts) = set("LUMOS_BROWSER_HOSTS") {
            for host in hosts.to_string_lossy().split(',') {
                settings.hosts.allow(host.trim()).map_err(|error| format!("LUMOS_BROWSER_HOSTS: {error}"))?;
            }
        }
        if let Some(host) = set("LUMOS_BROWSER_OWN_HOST") {
            let host = host.to_string_lossy().into_owned();
            settings.hosts.allow(&host).map_err(|error| format!("LUMOS_BROWSER_OWN_HOST: {error}"))?;
            settings.own_host = Some(host);
        }
        if let Some(sessions) = set("LUMOS_BROWSER_SESSIONS") {
            let number = sessions.to_str().and_then(|text| text.parse().ok()).filter(|number| *number > 0);
            settings.sessions = Some(number.ok_or_else(|| {
                format!(
                    "invalid value `{}` for LUMOS_BROWSER_SESSIONS: expected a positive integer",
                    sessions.to_string_lossy()
                )
            })?);
        }
        if let Some(program) = set("LUMOS_CHROMEDRIVER") {
            settings.chromedriver = program.into();
            // An installed headless shell may be of another version than this driver.
            settings.chromium = None;
        }
        if let Some(program) = set("LUMOS_CHROMIUM") {
            let program = PathBuf::from(program);
            // The driver does not search `PATH`.
            let is_local = settings.browser == BrowserName::Chromedriver;
            settings.chromium = is_local.then(|| found(&program)).flatten().or(Some(program));
        }
        Ok(settings)
    }
}

/// Chromium's headless shell: under the name of its project's own packages, and where Debian's package has it, whose name in
/// `PATH` is a script that would be between the driver and the browser.
const HEADLESS_SHELLS: [&str; 2] = ["chrome-headless-shell", "/usr/lib/chromium/chromium-headless-shell"];

/// Finds an installed headless shell.
fn headless_shell() -> Option<PathBuf> {
    HEADLESS_SHELLS.iter().find_map(|name| found(Path::new(name)))
}

/// Finds a program in the same way as the shell.
pub(crate) fn found(program: &Path) -> Option<PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join(program)).find(|file| file.is_file())
}

/// Maximum length of the path of a browser folder, in bytes. Chromium creates a socket 72 bytes below it
/// (`/pool-XXXXXX/session-XXXXXX/org.chromium.Chromium.XXXXXX/SingletonSocket`) and exits if the socket's
/// path is longer than the system allows: 107 bytes on Linux, 103 on macOS.
const LONGEST_FOLDER: usize = if cfg!(target_os = "linux") { 107 - 72 } else { 103 - 72 };

/// Returns the folder for this user's browsers in the temporary folder, or in `/tmp` if that path is too
/// long.
fn folder_below(temporary: &Path) -> PathBuf {
    let name = format!("lumos-browsers-{}", user());
    let folder = temporary.join(&name);
    if cfg!(unix) && folder.as_os_str().len() > LONGEST_FOLDER {
        return Path::new("/tmp").join(name);
    }
    folder
}

#[cfg(unix)]
fn user() -> u32 {
    rustix::process::geteuid().as_raw()
}

#[cfg(not(unix))]
fn user() -> u32 {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(unix)]
    #[test]
    fn folders_leave_room_for_the_path_of_a_socket() {
        let short = folder_below(Path::new("/var/tmp"));
        assert!(short.starts_with("/var/tmp"), "{}", short.display());
        let long = folder_below(Path::new("/scratch/jobs/2026-11-23/1234567/tmp"));
        assert_eq!(long, Path::new("/tmp").join(format!("lumos-browsers-{}", user())));
        for folder in [short, long] {
            assert!(folder.as_os_str().len() <= LONGEST_FOLDER, "{}", folder.display());
        }
    }

    #[test]
    fn names_of_browsers() {
        assert_eq!("chromedriver".parse(), Ok(BrowserName::Chromedriver));
        let grid: BrowserName = "http://grid:4444/wd/hub".parse().unwrap();
        assert_eq!(grid.to_string(), "http://grid:4444/wd/hub");
        let bare: BrowserName = "http://grid:4444/".parse().unwrap();
        assert_eq!(bare.to_string(), "http://grid:4444");
        for secret in ["http://user:hush@grid:4444", "https://user@grid", "http://grid:4444/?key=hush"] {
            let error = secret.parse::<BrowserName>().unwrap_err();
            assert_eq!(error, UnknownBrowser::Secret);
            assert!(!error.to_string().contains("hush") && !error.to_string().contains("grid:"));
        }
        for name in ["", "firefox", "file:///etc/passwd", "https://grid", "grid:4444"] {
            assert!(name.parse::<BrowserName>().is_err(), "{name}");
        }
    }
}
