//! Access policy: which hosts, files, folders and tools a run that was planned on another machine may use.
//!
//! The coordinator of a queue names models and tools, and with them paths and addresses. [`AccessPolicy`]
//! decides which of them a worker uses. It is checked before a file is opened or a connection is made.
//! Refusals depend on names only: a path outside the allowed folders gets the same message whether it exists
//! or not. Runs planned on this machine's own command line are unrestricted, which is the default.
//!
//! Addresses that only the operator can set (`HF_ENDPOINT`, `LUMOS_WIKI_ENDPOINT`, `LUMOS_SQL_URL`) are not
//! checked.

use std::path::{Component, Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;
use url::{Host, Url};

use super::hosts::{AllowedHosts, is_loopback};

/// Allows every host.
const ANY_HOST: &str = "*";
/// Maximum characters of a refused name in a message.
const LONGEST_NAME: usize = 200;

/// A host, path or tool that the operator of this worker does not allow.
///
/// Names are escaped and shortened. The hint does not repeat them, because they come from whoever planned the
/// run and the hint is meant to be pasted into a shell.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum AccessRefusal {
    /// A path outside the allowed folders.
    #[error(
        "this worker does not allow the path `{0}`; hint: its operator can allow it with \
         `lumos worker --allow-path <PATH>`"
    )]
    Path(String),
    /// A host that is not on the list.
    #[error(
        "this worker does not allow the host `{0}`; hint: its operator can allow it with \
         `lumos worker --allow-host <HOST[:PORT]>`"
    )]
    Host(String),
    /// A tool that starts a program or sends its calls to a server, and that is not on the list.
    #[error(
        "this worker does not allow the tool `{0}`; hint: its operator can allow it with \
         `lumos worker --allow-tool '<NAME>=<BACKEND>'`"
    )]
    Tool(String),
}

/// Hosts, paths and tools that runs may use. Cheap to clone; unrestricted by default.
#[derive(Debug, Clone, Default)]
pub struct AccessPolicy(Option<Arc<Allowed>>);

/// Hosts, paths and tools allowed in a restricted process.
#[derive(Debug, Default, Clone)]
struct Allowed {
    every_host: bool,
    hosts: AllowedHosts,
    /// Absolute paths of files and folders. Symbolic links in them are resolved at each check, because caches
    /// may be created later.
    paths: Vec<PathBuf>,
    /// Tools that start programs or send calls to servers, as `NAME=BACKEND`.
    tools: Vec<String>,
}

impl AccessRefusal {
    /// Creates the refusal of a path.
    pub fn path(path: &Path) -> Self {
        Self::Path(shown(&path.to_string_lossy()))
    }
}

impl AccessPolicy {
    /// Creates a policy that allows only these hosts and paths, and loopback.
    ///
    /// # Errors
    /// If a host is invalid or a path is empty.
    pub fn only(hosts: &[String], paths: &[PathBuf]) -> Result<Self, String> {
        Ok(Self(Some(Arc::new(Allowed::new(hosts, paths)?))))
    }

    /// Returns the same policy with tools that may start programs or send calls to servers, each as `NAME=BACKEND`. They
    /// are compared verbatim. An unrestricted policy allows all of them.
    #[must_use]
    pub fn with_tools(mut self, tools: &[String]) -> Self {
        if let Some(allowed) = &mut self.0 {
            Arc::make_mut(allowed).tools.extend(tools.iter().map(|tool| tool.trim().to_owned()));
        }
        self
    }

    /// Checks whether a run may make this process use a tool that starts a program or sends calls to a server:
    /// `NAME=BACKEND`.
    ///
    /// # Errors
    /// If it may not.
    pub fn check_tool(&self, tool: &str) -> Result<(), AccessRefusal> {
        let Some(allowed) = &self.0 else { return Ok(()) };
        let is_allowed = allowed.tools.iter().any(|allowed| allowed == tool);
        if is_allowed { Ok(()) } else { Err(AccessRefusal::Tool(shown(tool))) }
    }

    /// Checks whether a run may make this process connect to a host.
    ///
    /// # Errors
    /// If it may not.
    pub fn check_host(&self, host: &str, port: u16) -> Result<(), AccessRefusal> {
        let Some(allowed) = &self.0 else { return Ok(()) };
        let is_allowed = match Host::parse(host) {
            Ok(parsed) => {
                allowed.every_host || is_loopback(&parsed) || allowed.hosts.contains(&parsed, Some(port))
            }
            Err(_) => false,
        };
        if is_allowed { Ok(()) } else { Err(AccessRefusal::Host(shown(&format!("{host}:{port}")))) }
    }

    /// Checks whether a run may make this process connect to the server of a URL.
    ///
    /// # Errors
    /// If it may not, or if the URL has no host and port.
    pub fn check_url(&self, url: &Url) -> Result<(), AccessRefusal> {
        match url.host_str().zip(url.port_or_known_default()) {
            Some((host, port)) => self.check_host(host, port),
            None if self.0.is_none() => Ok(()),
            None => Err(AccessRefusal::Host(shown(url.as_str()))),
        }
    }

    /// Checks whether a run may make this process read a file or a folder. Symbolic links and `..` are
    /// resolved first.
    ///
    /// # Errors
    /// If it may not. The message is the same whether the path exists or not.
    pub fn check_path(&self, path: &Path) -> Result<(), AccessRefusal> {
        let Some(allowed) = &self.0 else { return Ok(()) };
        let is_allowed = allowed.resolved(path).is_some_and(|path| allowed.holds(&path));
        if is_allowed { Ok(()) } else { Err(AccessRefusal::path(path)) }
    }
}

impl Allowed {
    fn new(hosts: &[String], paths: &[PathBuf]) -> Result<Self, String> {
        let mut allowed = Self::default();
        for host in hosts.iter().map(|host| host.trim()) {
            match host {
                ANY_HOST => allowed.every_host = true,
                host => allowed.hosts.allow(host)?,
            }
        }
        for path in paths {
            let absolute = std::path::absolute(path);
            allowed.paths.push(absolute.map_err(|error| format!("`{}`: {error}", path.display()))?);
        }
        Ok(allowed)
    }

    /// Whether a resolved path is an allowed path or below one.
    fn holds(&self, path: &Path) -> bool {
        self.paths.iter().any(|allowed| match allowed.canonicalize() {
            Ok(allowed) => path.starts_with(allowed),
            Err(_) => path.starts_with(allowed),
        })
    }

    /// Resolves a path as far as it exists. Returns `None` if resolving it could reveal whether a path
    /// outside the allowed folders exists: behind a dangling link, and if `..` follows a folder that is not
    /// allowed.
    fn resolved(&self, path: &Path) -> Option<PathBuf> {
        let absolute = std::path::absolute(path).ok()?;
        let here = std::env::current_dir().unwrap_or_default();
        let mut plain = PathBuf::new();
        for component in absolute.components() {
            match component {
                Component::ParentDir => {
                    if !here.starts_with(&plain) && !self.holds(&plain) {
                        return None;
                    }
                    plain.pop();
                }
                component => plain.push(component),
            }
        }
        for ancestor in absolute.ancestors() {
            match ancestor.canonicalize() {
                Ok(resolved) => {
                    let rest = absolute.strip_prefix(ancestor).ok()?;
                    let is_plain = rest.components().all(|part| matches!(part, Component::Normal(_)));
                    return is_plain.then(|| resolved.join(rest));
                }
                Err(_) if ancestor.symlink_metadata().is_ok_and(|found| found.is_symlink()) => return None,
                Err(_) => {}
            }
        }
        None
    }
}

/// Escapes and shortens an untrusted name for a message.
fn shown(name: &str) -> String {
    let mut shown: String = name.chars().take(LONGEST_NAME).flat_map(char::escape_debug).collect();
    if name.chars().nth(LONGEST_NAME).is_some() {
        shown.push('…');
    }
    shown
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use super::*;

    fn policy(hosts: &[&str], paths: &[&Path]) -> AccessPolicy {
        let hosts: Vec<String> = hosts.iter().map(|host| (*host).to_owned()).collect();
        let paths: Vec<PathBuf> = paths.iter().map(|path| (*path).to_owned()).collect();
        AccessPolicy::only(&hosts, &paths).unwrap()
    }

    fn reaches(policy: &AccessPolicy, address: &str) -> bool {
        policy.check_url(&Url::parse(address).unwrap()).is_ok()
    }

    #[test]
    fn loopback_and_named_hosts_are_allowed() {
        let policy = policy(&["grid.example:4444", "wiki.example"], &[]);
        for address in [
            "http://127.0.0.1:9/",
            "http://127.1.2.3/",
            "http://2130706433/",
            "http://localhost:8000/v1",
            "http://[::1]:80/",
            "http://[::ffff:127.0.0.1]/",
            "http://grid.example:4444",
            "https://WIKI.example/",
        ] {
            assert!(reaches(&policy, address), "{address}");
        }
        for address in [
            "http://grid.example/",
            "http://169.254.169.254/latest",
            "http://0.0.0.0/",
            "http://127.0.0.1.evil.example/",
            "http://localhost.evil.example/",
            "http://127.0.0.1@evil.example/",
            "http://[fd00::1]/",
            "https://api.openai.com/v1",
            "file:///etc/passwd",
        ] {
            assert!(!reaches(&policy, address), "{address}");
            assert!(reaches(&AccessPolicy::default(), address), "{address}");
        }
        assert!(policy.check_host("db.example", 3306).is_err());
        assert!(policy.check_host("127.1", 3306).is_ok());
        let every = self::policy(&["*"], &[]);
        assert!(reaches(&every, "http://169.254.169.254/"));
        for host in ["", "a b", "http://host", "host:99999"] {
            assert!(AccessPolicy::only(&[host.to_owned()], &[]).is_err(), "{host}");
        }
    }

    #[test]
    fn tools_are_allowed_verbatim() {
        let tools = ["weather=exec:python3 weather.py".to_owned(), " maps=http://maps.example/ ".to_owned()];
        let policy = policy(&["maps.example"], &[]).with_tools(&tools);
        assert_eq!(policy.check_tool("weather=exec:python3 weather.py"), Ok(()));
        assert_eq!(policy.check_tool("maps=http://maps.example/"), Ok(()));
        for refused in [
            "weather=exec:python3 weather.py --verbose",
            "weather=exec:python3  weather.py",
            "other=exec:python3 weather.py",
            "maps=http://maps.example/other",
            "",
        ] {
            let refusal = policy.check_tool(refused).unwrap_err().to_string();
            assert!(refusal.contains("--allow-tool '<NAME>=<BACKEND>'"), "{refusal}");
        }
        let unrestricted = AccessPolicy::default();
        assert_eq!(unrestricted.clone().with_tools(&tools).check_tool("any=exec:sh"), Ok(()));
        assert_eq!(unrestricted.check_tool("any=exec:sh"), Ok(()));
    }

    #[test]
    fn links_and_dots_do_not_lead_out_of_the_allowed_folders() {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        for name in ["data/models/plan", "secret"] {
            fs::create_dir_all(path(name)).unwrap();
        }
        fs::write(path("secret/key"), "").unwrap();
        symlink(path("secret"), path("data/out")).unwrap();
        symlink(path("nowhere"), path("data/dangling")).unwrap();
        symlink(path("data/models"), path("models")).unwrap();
        let policy = policy(&[], &[&path("data")]);
        for allowed in
            ["data", "data/models/plan", "data/models/../models/none", "data/none/at/all", "models/plan"]
        {
            assert_eq!(policy.check_path(&path(allowed)), Ok(()), "{allowed}");
        }
        for refused in [
            "secret",
            "secret/key",
            "data/../secret/key",
            "data/out",
            "data/out/key",
            "data/out/../secret",
            "data/dangling",
            "data/dangling/x",
            "data/none/../../secret",
            "database",
            "",
        ] {
            assert!(policy.check_path(&path(refused)).is_err(), "{refused}");
        }
        // The allowed folder itself may be behind a link, and may not exist yet.
        assert_eq!(self::policy(&[], &[&path("models")]).check_path(&path("data/models/plan")), Ok(()));
        assert_eq!(self::policy(&[], &[&path("later")]).check_path(&path("later/file")), Ok(()));
        assert_eq!(AccessPolicy::default().check_path(&path("secret/key")), Ok(()));
    }

    #[test]
    fn a_refusal_does_not_tell_whether_there_is_such_a_path() {
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        fs::create_dir(&data).unwrap();
        fs::create_dir(folder.path().join("there")).unwrap();
        let policy = policy(&[], &[&data]);
        let refusal = |name: &str| {
            let path = folder.path().join(name);
            policy.check_path(&path).unwrap_err().to_string().replace(name, "NAME")
        };
        assert_eq!(refusal("there"), refusal("none"));
        assert_eq!(refusal("there/a"), refusal("none/a"));
        // Both paths lead back into the data folder.
        assert_eq!(refusal("there/../data"), refusal("none/../data"));
    }

    #[test]
    fn what_is_shown_of_a_name_is_short_and_harmless() {
        let policy = policy(&[], &[]);
        let refusal = policy.check_path(Path::new("/x\u{1b}[2J\n`reboot`")).unwrap_err().to_string();
        assert!(!refusal.contains(['\u{1b}', '\n']), "{refusal:?}");
        let hint = refusal.split_once("hint: ").unwrap().1;
        assert!(hint.contains("--allow-path <PATH>") && !hint.contains("reboot"), "{hint}");
        let long = policy.check_path(&Path::new("/").join("x".repeat(100_000))).unwrap_err().to_string();
        assert!(long.len() < 600, "{}", long.len());
    }
}
