//! A website, pools with separate folders, and the processes that belong to a folder.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, State};
use axum::response::{Html, Redirect};
use axum::routing::get;
use serde::Deserialize;
use serde_json::json;

use crate::browser::webdriver::{BrowserError, BrowserFault, BrowserLease, BrowserPool, PageElement};
use crate::browser::{BrowserName, BrowserSettings, found};

/// A pool whose browsers have time limits that a busy machine does not reach.
pub(crate) struct TestPool {
    pub(crate) pool: BrowserPool,
    pub(crate) folder: tempfile::TempDir,
}

pub(crate) fn settings(folder: &Path, sessions: usize) -> BrowserSettings {
    let mut settings = BrowserSettings::new(BrowserName::Chromedriver);
    settings.sessions = Some(sessions);
    settings.start_limit = Duration::from_secs(60);
    settings.page_limit = Duration::from_secs(60);
    settings.command_limit = Duration::from_secs(60);
    settings.folder = folder.to_owned();
    // To run these tests with another browser.
    if let Some(program) = std::env::var_os("LUMOS_CHROMIUM") {
        settings.chromium = found(program.as_ref());
    }
    settings
}

impl TestPool {
    pub(crate) fn new(sessions: usize) -> Self {
        Self::with(sessions, |_| {})
    }

    pub(crate) fn with(sessions: usize, change: impl FnOnce(&mut BrowserSettings)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut settings = settings(folder.path(), sessions);
        change(&mut settings);
        Self { pool: BrowserPool::new(settings).unwrap(), folder }
    }

    pub(crate) async fn session(&self) -> Result<BrowserLease, BrowserFault> {
        self.pool.session().await
    }

    /// Ends the pool. Returns the processes that still run after a while.
    pub(crate) fn left(self) -> Vec<Process> {
        drop(self.pool);
        gone(self.folder.path())
    }
}

const TEXTS: &str = include_str!("texts.js");
/// Maximum number of characters that are read.
const MOST_TEXT: usize = 1 << 20;

impl BrowserLease {
    /// Returns the lines of text that are visible on the page, without surrounding white space. If a CSS
    /// selector is given, returns one text for each matching element. At most 1,048,576
    /// characters.
    ///
    /// # Errors
    /// Faults only.
    pub(crate) async fn read_visible_texts(
        &mut self,
        selector: Option<&str>,
    ) -> Result<Vec<String>, BrowserError> {
        let arguments = vec![json!(selector), json!(MOST_TEXT)];
        let texts = self.execute(TEXTS, arguments).await?;
        let texts = texts.as_array().map(Vec::as_slice).unwrap_or_default();
        Ok(texts.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect())
    }

    /// Returns the first element that matches a CSS selector, visible or not.
    pub(crate) async fn find_by_css(&mut self, selector: &str) -> PageElement {
        const BODY: &str = "return document.querySelector(arguments[0]);";
        self.find(BODY, vec![json!(selector)]).await.unwrap().unwrap()
    }

    /// Builds a page with a text.
    pub(crate) async fn build_from(&mut self, html: &str) -> Result<(), BrowserError> {
        self.build("document.documentElement.innerHTML = arguments[0];", vec![json!(html)]).await
    }
}

/// A process whose environment or command line contains a folder.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: i32,
    pub(crate) line: String,
}

impl Process {
    pub(crate) fn kill(&self) {
        let id = rustix::process::Pid::from_raw(self.id).unwrap();
        let _ = rustix::process::kill_process(id, rustix::process::Signal::KILL);
    }
}

pub(crate) fn processes(folder: &Path) -> Vec<Process> {
    let name = folder.to_str().unwrap();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let Some(id) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let read = |file: &str| {
            let bytes = std::fs::read(entry.path().join(file)).unwrap_or_default();
            String::from_utf8_lossy(&bytes).replace('\0', " ")
        };
        let line = read("cmdline");
        let is_zombie =
            read("stat").rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with('Z'));
        let is_own = u32::try_from(id).unwrap() == std::process::id();
        if !is_own && !is_zombie && (line.contains(name) || read("environ").contains(name)) {
            found.push(Process { id, line });
        }
    }
    found
}

/// Waits for the processes of a folder to end. Returns those that still run.
pub(crate) fn gone(folder: &Path) -> Vec<Process> {
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let left = processes(folder);
        if left.is_empty() || Instant::now() > until {
            return left;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A website that counts the requests to one of its pages.
pub(crate) struct Site {
    pub(crate) address: SocketAddr,
    pub(crate) requests: Arc<AtomicUsize>,
}

#[derive(Deserialize)]
struct Asked {
    words: Option<String>,
    kind: Option<String>,
}

const FORM: &str = r#"<!doctype html><title>Shop</title><h1>Shop</h1>
<form action=/results><label>Words <input name=words></label>
<label for=k>Kind</label><select id=k name=kind><option value=a>All kinds<option value=b>Lamps</select>
<button>Search</button></form>
<a href=/elsewhere>Elsewhere</a> <a href="/a  b"> Two
 words </a> <a href="file:///etc/passwd">Files</a>
<button disabled>Closed</button> <button style="display:none">Secret</button>
<div style="position:relative"><button>Covered</button><div style="position:absolute;inset:0;background:#fff"></div></div>
<p style="visibility:hidden">unseen</p>"#;

/// Clicks that leave the page in every way, and clicks that seem to.
const CLICKS: &str = r#"<!doctype html><h1>Clicks</h1>
<form id=f action=/results><input name=words value=w><input name=kind value=k><input name=target value=t></form>
<button onclick="f.submit()">Script submits</button>
<button onclick="f.requestSubmit()">Script asks to submit</button>
<button onclick="location = '/results?words=w&kind=k'">Script moves</button>
<button onclick="Promise.resolve().then(() => { location = '/results?words=w&kind=k' })">Promise moves</button>
<select onchange="f.submit()" aria-label=Pick><option>none<option>some</select>
<a href="/results?words=w&kind=k"><button type=button onclick="this.parentNode.click()">Link</button></a>
<form onsubmit="event.preventDefault(); h.textContent += '1'"><button>Prevented</button></form>
<button onclick="history.pushState(null, '', '/pushed'); h.textContent += '2'">Pushed</button>
<a href="/taken" role=button>Taken over</a>
<a href='#h' role=button onclick="h.textContent += '4'">Hash</a>
<form method=dialog onsubmit="h.textContent += '5'"><button>Dialog</button></form>
<p id=h>stayed: </p>
<script>navigation.onnavigate = (event) => {
  if (event.destination.url.endsWith('/taken'))
    event.intercept({ async handler() { h.textContent += '3'; } });
}</script>"#;

impl Site {
    pub(crate) async fn start() -> Self {
        let requests = Arc::new(AtomicUsize::new(0));
        let page = |html: &'static str| get(move || async move { Html(html) });
        let router = Router::new()
            .route("/", page(FORM))
            .route(
                "/results",
                get(|Query(asked): Query<Asked>| async move {
                    let Asked { words, kind } = asked;
                    Html(format!("<p>words: {}</p><p>kind: {}</p>", words.unwrap(), kind.unwrap()))
                }),
            )
            .route("/clicks", page(CLICKS))
            .route("/elsewhere", get(|| async { Redirect::temporary("http://elsewhere.example/") }))
            .route("/leave", page("<script>location = 'http://elsewhere.example/'</script>"))
            .route("/alert", page("<script>alert('stop')</script><p>after</p><button onclick=\"confirm('sure?')\">Ask</button>"))
            .route(
                "/stay",
                page("<input name=a><script>onbeforeunload = (event) => { event.preventDefault(); return 'stay'; }</script>"),
            )
            // These block the page as a loop does, without computing.
            .route(
                "/endless",
                page(
                    "<p>begun</p><script>const r = new XMLHttpRequest(); r.open('GET', '/never', false); r.send()</script>",
                ),
            )
            .route(
                "/endless-later",
                page(
                    "<script>function wait() { const r = new XMLHttpRequest(); r.open('GET', '/never', false); r.send() }</script>\
                     <button onclick=\"setTimeout(wait, 50)\">Begin</button>",
                ),
            )
            .route("/never", get(|| async { std::future::pending::<()>().await }))
            .route("/keep", page("<script>document.cookie = 'a=1'; localStorage.b = '2'; open('/'); open('/')</script>"))
            .route(
                "/kept",
                page("<p id=k></p><script>k.textContent = `kept:${document.cookie}${localStorage.b || ''}`</script>"),
            )
            .route(
                "/downloads",
                page(
                    "<p>begun</p><script>const a = document.createElement('a'); \
                     const click = (name, address) => { a.download = name; a.href = address; a.click() }; \
                     click('lumos-blob', URL.createObjectURL(new Blob(['written by a page']))); \
                     click('lumos-file', '/file')</script>",
                ),
            )
            .route(
                "/file",
                get(|| async {
                    ([("content-disposition", "attachment; filename=lumos-file")], "sent by a site")
                }),
            )
            .route(
                "/counted",
                get(|State(requests): State<Arc<AtomicUsize>>| async move {
                    requests.fetch_add(1, Ordering::SeqCst);
                    "counted"
                }),
            )
            .with_state(Arc::clone(&requests));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
        Self { address, requests }
    }

    pub(crate) fn page(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }
}

/// Starts a site and a pool, and leases a browser. Without Chromium, the test is skipped.
pub(crate) async fn started() -> Option<(Site, TestPool, BrowserLease)> {
    if !lumos_capabilities::has_browser() {
        return None;
    }
    let (site, pool) = (Site::start().await, TestPool::new(1));
    let lease = pool.session().await.unwrap();
    Some((site, pool, lease))
}

/// A chromedriver that does not belong to a pool, like one on another host.
pub(crate) struct Server {
    child: std::process::Child,
    pub(crate) url: String,
    /// A browser without its sandbox, which rejects root; these tests may run as root.
    pub(crate) chromium: PathBuf,
}

impl Server {
    pub(crate) fn start(folder: &Path) -> Self {
        use std::io::{BufRead, BufReader};
        use std::os::unix::fs::PermissionsExt;
        use std::os::unix::process::CommandExt;
        let mut child = std::process::Command::new("chromedriver")
            .arg("--port=0")
            .env("TMPDIR", folder)
            .stdout(std::process::Stdio::piped())
            .process_group(0)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let port = lines.map_while(Result::ok).find_map(|line| {
            Some(line.split_once("successfully on port ")?.1.trim_end_matches('.').to_owned())
        });
        let url = format!("http://127.0.0.1:{}", port.unwrap());
        let chromium = folder.join("chromium");
        std::fs::write(&chromium, "#!/bin/sh\nexec chromium --no-sandbox \"$@\"\n").unwrap();
        std::fs::set_permissions(&chromium, std::fs::Permissions::from_mode(0o755)).unwrap();
        Self { child, url, chromium }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let group = rustix::process::Pid::from_child(&self.child);
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        let _ = self.child.wait();
    }
}
