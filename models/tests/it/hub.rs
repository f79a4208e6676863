//! Models of the hub, with a local server that implements its paths: descriptions, HEAD responses with
//! hashes, large files on another origin, and ranges. The server can be busy, break off downloads, and
//! restrict access.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::http::{HeaderMap, Method, Response, header};
use futures::StreamExt;
use lumos_models::ModelRegistry;
use lumos_models::hub::{Hub, HubError, HubName, HubSettings};
use lumos_models::{ModelsSettings, ServerKey};
use lumos_tasks::{Formulation, Role};
use serde_json::json;
use sha1::{Digest as _, Sha1};
use sha2::{Digest, Sha256};

const TOKEN: &str = "hf_0123456789secret";
const FIRST: &str = "1111111111111111111111111111111111111111";
const SECOND: &str = "2222222222222222222222222222222222222222";

/// Behaviour of the hub.
#[derive(Default)]
struct Site {
    /// Files of `/org/model`.
    files: BTreeMap<&'static str, Vec<u8>>,
    /// Files of `/org/adapter`.
    adapter: BTreeMap<&'static str, Vec<u8>>,
    /// Files of the data set `/datasets/org/data`.
    data: BTreeMap<&'static str, Vec<u8>>,
    commit: Mutex<&'static str>,
    requests: Mutex<Vec<String>>,
    ranges: Mutex<Vec<String>>,
    busy: AtomicUsize,
    /// Number of downloads of large files that break off halfway.
    breaks: AtomicUsize,
    /// Content that replaces that of large files.
    forged: Option<Vec<u8>>,
    gated: bool,
    /// Beginning of the paths whose responses do not end.
    hangs: Mutex<Option<&'static str>>,
    /// Origin of large files, which differs from the hub's.
    elsewhere: Mutex<String>,
}

/// Returns git's hash of a content, the ETag of small files.
fn git_blob(content: &[u8]) -> String {
    hex::encode(Sha1::new_with_prefix(format!("blob {}\0", content.len())).chain_update(content).finalize())
}

fn answer(status: u16) -> axum::http::response::Builder {
    Response::builder().status(status)
}

impl Site {
    fn respond(&self, method: &Method, path: &str, headers: &HeaderMap) -> Response<Body> {
        let has_token =
            headers.get(header::AUTHORIZATION).is_some_and(|value| value == &format!("Bearer {TOKEN}"));
        self.requests
            .lock()
            .unwrap()
            .push(format!("{method} {path}{}", if has_token { " (token)" } else { "" }));
        if self.hangs.lock().unwrap().is_some_and(|beginning| path.starts_with(beginning)) {
            let endless = futures::stream::pending::<std::io::Result<Bytes>>();
            return answer(200).body(Body::from_stream(endless)).unwrap();
        }
        if let Some(file) = path.strip_prefix("/large/") {
            return self.large(file, headers);
        }
        if self.busy.load(Ordering::SeqCst) > 0 {
            self.busy.fetch_sub(1, Ordering::SeqCst);
            return answer(429).header(header::RETRY_AFTER, "1").body(Body::empty()).unwrap();
        }
        let commit = *self.commit.lock().unwrap();
        let data_set = path.strip_prefix("/api/").filter(|rest| rest.starts_with("datasets/"));
        if let Some(rest) = path.strip_prefix("/api/models/").or(data_set) {
            let asked =
                rest.split_once("/revision/").and_then(|(id, revision)| Some((self.of(id)?, id, revision)));
            return match asked {
                Some((files, id, revision)) if revision == "main" || revision == commit => {
                    let names = files.keys().map(|name| json!({"rfilename": name}));
                    let siblings: Vec<_> = names.chain([json!({"rfilename": "README.md"})]).collect();
                    let body = json!({"id": id, "sha": commit, "siblings": siblings}).to_string();
                    answer(200).body(body.into()).unwrap()
                }
                Some(_) => {
                    answer(404).header("x-error-code", "RevisionNotFound").body(Body::empty()).unwrap()
                }
                None => answer(401).header("x-error-code", "RepoNotFound").body(Body::empty()).unwrap(),
            };
        }
        if self.gated && !has_token {
            return answer(401).header("x-error-code", "GatedRepo").body(Body::empty()).unwrap();
        }
        let content = path
            .trim_start_matches('/')
            .split_once(&format!("/resolve/{commit}/"))
            .and_then(|(id, file)| Some((file, self.of(id)?.get(file)?)));
        let Some((file, content)) = content else {
            return answer(404).header("x-error-code", "EntryNotFound").body(Body::empty()).unwrap();
        };
        let about = answer(200).header("x-repo-commit", commit);
        if [".safetensors", ".gguf", ".parquet"].iter().any(|ending| file.ends_with(ending)) {
            let etag = format!("\"{}\"", hex::encode(Sha256::digest(content)));
            let elsewhere = format!("{}/large/{file}?signature=hidden", self.elsewhere.lock().unwrap());
            let about =
                about.status(302).header("x-linked-etag", etag).header("x-linked-size", content.len());
            return about.header(header::LOCATION, elsewhere).body(Body::empty()).unwrap();
        }
        let etag = format!("W/\"{}\"", git_blob(content));
        let about = about.header(header::ETAG, etag).header(header::CONTENT_LENGTH, content.len());
        let body = if method == Method::HEAD { Body::empty() } else { Body::from(content.clone()) };
        about.body(body).unwrap()
    }

    fn large(&self, file: &str, headers: &HeaderMap) -> Response<Body> {
        let own = self.files.get(file).or_else(|| self.data.get(file)).unwrap_or_else(|| &self.adapter[file]);
        let content = self.forged.as_ref().unwrap_or(own);
        let range = headers.get(header::RANGE).map(|range| range.to_str().unwrap().to_owned());
        let start: usize = range.as_ref().map_or(0, |range| {
            self.ranges.lock().unwrap().push(range.clone());
            range.strip_prefix("bytes=").unwrap().strip_suffix('-').unwrap().parse().unwrap()
        });
        let rest = content[start..].to_vec();
        let about = answer(if start > 0 { 206 } else { 200 })
            .header(header::CONTENT_LENGTH, rest.len())
            .header(header::CONTENT_RANGE, format!("bytes {start}-{}/{}", content.len() - 1, content.len()));
        if self.breaks.load(Ordering::SeqCst) == 0 {
            return about.body(Body::from(rest)).unwrap();
        }
        self.breaks.fetch_sub(1, Ordering::SeqCst);
        let half = Bytes::copy_from_slice(&rest[..rest.len() / 2]);
        let broken = futures::stream::iter([Ok(half)]).chain(futures::stream::once(async {
            tokio::time::sleep(Duration::from_millis(100)).await;
            Err(std::io::Error::other("the connection was lost"))
        }));
        about.body(Body::from_stream(broken)).unwrap()
    }

    /// Returns the files of a model, if the hub has it.
    fn of(&self, id: &str) -> Option<&BTreeMap<&'static str, Vec<u8>>> {
        match id {
            "org/model" => Some(&self.files),
            "org/adapter" => Some(&self.adapter),
            "datasets/org/data" => Some(&self.data),
            _ => None,
        }
    }

    fn count(&self, beginning: &str) -> usize {
        self.requests.lock().unwrap().iter().filter(|request| request.starts_with(beginning)).count()
    }
}

async fn respond(State(site): State<Arc<Site>>, request: Request) -> Response<Body> {
    site.respond(request.method(), request.uri().path(), request.headers())
}

/// A hub that runs on its own threads until it is dropped, and a cache.
struct Fixture {
    site: Arc<Site>,
    settings: HubSettings,
    cache: tempfile::TempDir,
    _runtime: tokio::runtime::Runtime,
}

fn start(site: Site) -> Fixture {
    let content: Vec<u8> = (0..200_000u32).map(|index| (index % 251) as u8).collect();
    let files = BTreeMap::from([
        ("config.json", b"{}".to_vec()),
        ("tokenizer.json", b"{\"a\": 1}".to_vec()),
        ("model.safetensors", content),
    ]);
    start_with(files, site)
}

fn start_with(files: BTreeMap<&'static str, Vec<u8>>, site: Site) -> Fixture {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().unwrap();
    let adapter = BTreeMap::from([
        ("adapter_config.json", br#"{"base_model_name_or_path": "org/model", "revision": "main"}"#.to_vec()),
        ("adapter_model.bin", vec![1; 100]),
        ("adapter_model.safetensors", vec![2; 5000]),
        ("training_args.bin", vec![3; 100]),
    ]);
    let site = Arc::new(Site { files, adapter, commit: Mutex::new(FIRST), ..site });
    let listen = || {
        let listener = runtime.block_on(tokio::net::TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = format!("http://{}", listener.local_addr().unwrap());
        let routes = Router::new().fallback(respond).with_state(Arc::clone(&site));
        runtime.spawn(async move { axum::serve(listener, routes).await });
        address
    };
    let endpoint = listen();
    *site.elsewhere.lock().unwrap() = listen();
    let cache = tempfile::tempdir().unwrap();
    let settings = HubSettings {
        first_pause: Duration::from_millis(5),
        retries: 3,
        ..HubSettings::new(endpoint.parse().unwrap(), cache.path().to_owned())
    };
    Fixture { site, settings, cache, _runtime: runtime }
}

impl Fixture {
    fn fetch(&self, name: &str) -> Result<lumos_models::hub::HubModel, HubError> {
        Hub::new(Some(self.settings.clone())).fetch(&name.parse::<HubName>().unwrap())
    }
}

/// Returns all files below a folder with their content.
fn contents(folder: &Path) -> Vec<(String, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else {
                found.push((path.display().to_string(), std::fs::read(&path).unwrap()));
            }
        }
    }
    found
}

#[test]
fn a_busy_hub_and_a_broken_line_cost_time_only() {
    let hub = start(Site { busy: AtomicUsize::new(1), breaks: AtomicUsize::new(1), ..Site::default() });
    let settings = HubSettings { token: Some(ServerKey::new(TOKEN)), ..hub.settings.clone() };
    let began = Instant::now();
    let model = Hub::new(Some(settings)).fetch(&"org/model".parse().unwrap()).unwrap();
    assert!(began.elapsed() >= Duration::from_secs(1), "it waits for the requested time");
    assert_eq!(model.name.to_string(), format!("org/model@{FIRST}"));
    for (name, content) in &hub.site.files {
        assert_eq!(&std::fs::read(model.folder.join(name)).unwrap(), content, "{name}");
    }
    assert_eq!(*hub.site.ranges.lock().unwrap(), ["bytes=100000-"], "the download resumes");
    // The token is sent only to the hub, and no file contains it.
    let requests = hub.site.requests.lock().unwrap().clone();
    for request in &requests {
        assert_eq!(request.ends_with("(token)"), !request.contains("/large/"), "{request}");
    }
    for (path, content) in contents(hub.cache.path()) {
        let found = content.windows(TOKEN.len()).any(|window| window == TOKEN.as_bytes());
        assert!(!found && !path.contains("incomplete"), "{path}");
    }
    // A cached commit needs no network. A branch needs one request, and nothing is downloaded again.
    hub.site.requests.lock().unwrap().clear();
    hub.fetch(&model.name.to_string()).unwrap();
    assert!(hub.site.requests.lock().unwrap().is_empty());
    assert_eq!(hub.fetch("org/model").unwrap(), model);
    assert_eq!(hub.site.requests.lock().unwrap().len(), 1);
}

#[test]
fn an_interrupted_download_is_not_reported_as_a_missing_folder() {
    let files = BTreeMap::from([("config.json", b"{}".to_vec()), ("model.safetensors", vec![1; 16])]);
    let hub = start_with(files, Site { breaks: AtomicUsize::new(usize::MAX), ..Site::default() });
    let error = hub.fetch("org/model").unwrap_err();
    assert!(matches!(error, HubError::Interrupted { .. }), "{error}");
    let error = error.to_string();
    assert!(error.contains("model.safetensors of org/model") && !error.contains("not found"), "{error}");
    hub.site.breaks.store(0, Ordering::SeqCst);
    let model = hub.fetch("org/model").unwrap();
    assert_eq!(std::fs::read(model.folder.join("model.safetensors")).unwrap(), [1; 16]);
}

#[test]
fn a_cache_that_cannot_be_written_serves_what_it_has() {
    let data = BTreeMap::from([("test.jsonl", b"{}".to_vec())]);
    let hub = start(Site { data, ..Site::default() });
    let name = HubName::data_set("org/data", None).unwrap();
    let fetch = || {
        let data = Hub::new(Some(hub.settings.clone())).fetch_data(&name, "test.jsonl").unwrap();
        (hub.fetch("org/model").unwrap(), data)
    };
    let expected = fetch();
    // A file in the place of a folder prevents writing, whatever the user's permissions are.
    for folder in [".locks", "models--org--model/refs", "datasets--org--data/refs"] {
        let folder = hub.cache.path().join(folder);
        std::fs::remove_dir_all(&folder).unwrap();
        std::fs::write(&folder, "").unwrap();
    }
    assert_eq!(fetch(), expected);
}

#[test]
fn shards_are_those_of_the_index() {
    let files = |second: &str| {
        let index = json!({"weight_map": {"a": "first.safetensors", "b": second}});
        BTreeMap::from([
            ("config.json", b"{}".to_vec()),
            ("tokenizer.json", b"{}".to_vec()),
            ("model.safetensors.index.json", index.to_string().into_bytes()),
            ("model-of-another-index.safetensors", vec![3; 10]),
            ("first.safetensors", vec![1; 10]),
            ("second.safetensors", vec![2; 10]),
        ])
    };
    let hub = start_with(files("second.safetensors"), Site::default());
    let model = hub.fetch("org/model").unwrap();
    assert_eq!(std::fs::read(model.folder.join("first.safetensors")).unwrap(), [1; 10]);
    assert_eq!(std::fs::read(model.folder.join("second.safetensors")).unwrap(), [2; 10]);
    assert!(!model.folder.join("model-of-another-index.safetensors").exists());
    let offline = HubSettings { offline: true, ..hub.settings.clone() };
    assert_eq!(Hub::new(Some(offline)).fetch(&model.name).unwrap(), model);
    // A commit without one of its shards is not complete, and an index cannot name files elsewhere.
    for (second, words) in [
        ("third.safetensors", "`third.safetensors` not found in org/model"),
        ("../second.safetensors", "expected the name of a file in this folder"),
    ] {
        let hub = start_with(files(second), Site::default());
        let error = hub.fetch("org/model").unwrap_err().to_string();
        assert!(error.contains(words), "{error}");
        assert!(hub.fetch(&format!("org/model@{FIRST}")).is_err());
    }
}

#[test]
fn many_workers_of_a_host_download_once() {
    let hub = start(Site::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| hub.fetch("org/model").unwrap());
        }
    });
    assert_eq!(hub.site.count("GET /large/model.safetensors"), 1);
    assert_eq!(
        hub.site.count("GET /org/model/resolve/1111111111111111111111111111111111111111/config.json"),
        1
    );
}

#[test]
fn a_repository_that_hangs_delays_neither_the_cache_nor_other_repositories() {
    let hub = start(Site::default());
    let client = Arc::new(Hub::new(Some(hub.settings.clone())));
    let fetch = |name: &str| client.fetch(&name.parse().unwrap()).unwrap();
    let model = fetch("org/model");
    *hub.site.hangs.lock().unwrap() = Some("/api/models/org/model/");
    let (asked, hanging) = (hub.site.count("GET /api/models/org/model/"), Arc::clone(&client));
    // Ends when the server does.
    std::thread::spawn(move || hanging.fetch(&"org/model".parse().unwrap()));
    let began = Instant::now();
    while hub.site.count("GET /api/models/org/model/") == asked {
        assert!(began.elapsed() < Duration::from_secs(30), "the request is sent");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(fetch(&model.name.to_string()), model);
    assert_eq!(fetch("org/adapter").name.to_string(), format!("org/adapter@{FIRST}"));
    assert!(began.elapsed() < Duration::from_secs(30), "nothing waits for the request");
}

#[test]
fn a_branch_that_moved_is_another_commit_and_a_pinned_one_is_not() {
    let hub = start(Site::default());
    let first = hub.fetch("org/model").unwrap();
    *hub.site.commit.lock().unwrap() = SECOND;
    let second = hub.fetch("org/model").unwrap();
    assert_eq!((first.name.commit(), second.name.commit()), (Some(FIRST), Some(SECOND)));
    assert_eq!(hub.site.count("GET /large/"), 1, "the content is the same");
    assert_eq!(hub.fetch(&first.name.to_string()).unwrap(), first);
}

#[test]
fn a_gguf_file_is_a_model_of_its_own() {
    let files = BTreeMap::from([
        ("a-Q8_0.gguf", vec![8; 1000]),
        ("a-Q4_K_M.gguf", vec![4; 500]),
        ("config.json", b"{}".to_vec()),
    ]);
    let hub = start_with(files, Site::default());
    let model = hub.fetch("org/model/a-Q4_K_M.gguf").unwrap();
    assert_eq!(model.name.to_string(), format!("org/model/a-Q4_K_M.gguf@{FIRST}"));
    assert_eq!(std::fs::read(model.path()).unwrap(), [4; 500]);
    assert_eq!(hub.site.count("GET /large/"), 1, "only the named file");
    assert_eq!(hub.site.count("GET /org/model/resolve/"), 1);
    // A cached commit needs no network for this file; another file is requested.
    let asked = hub.site.requests.lock().unwrap().len();
    assert_eq!(hub.fetch(&model.name.to_string()).unwrap(), model);
    assert_eq!(hub.site.requests.lock().unwrap().len(), asked);
    let other = hub.fetch(&format!("org/model/a-Q8_0.gguf@{FIRST}")).unwrap();
    assert_eq!(std::fs::read(other.path()).unwrap(), [8; 1000]);
    let offline = HubSettings { offline: true, ..hub.settings.clone() };
    let offline = Hub::new(Some(offline));
    assert_eq!(offline.fetch(&"org/model/a-Q8_0.gguf".parse().unwrap()).unwrap(), other);
    assert!(offline.fetch(&"org/model".parse().unwrap()).is_err());
    // If there are several files, one of them must be named, and it must exist.
    let error = hub.fetch("org/model").unwrap_err().to_string();
    assert!(error.contains("a-Q4_K_M.gguf, a-Q8_0.gguf") && error.contains("candle:org/model/a-"), "{error}");
    let error = hub.fetch("org/model/b.gguf").unwrap_err().to_string();
    assert!(error.contains("`b.gguf` not found"), "{error}");
}

#[test]
fn the_only_gguf_file_of_a_repository_needs_no_name() {
    let hub = start_with(BTreeMap::from([("a.gguf", vec![1; 10])]), Site::default());
    let model = hub.fetch("org/model").unwrap();
    assert_eq!(model.name.to_string(), format!("org/model@{FIRST}"));
    assert_eq!(model.path(), model.folder);
    assert_eq!(std::fs::read(model.folder.join("a.gguf")).unwrap(), [1; 10]);
    // The identity is that of the file, regardless of its location, computed as for GGUF files.
    let settings = ModelsSettings { hub: Some(hub.settings.clone()), ..ModelsSettings::default() };
    let models = ModelRegistry::new(settings);
    let identify = |name: &str| models.identify(name, Role::Planner, Formulation::Iterative).unwrap();
    let planned = identify("candle:org/model");
    assert_eq!(planned.identity.dtype.as_deref(), Some("f32+full-rotary"));
    assert_eq!(planned.bytes(), 10);
    let copy = hub.cache.path().join("other.gguf");
    std::fs::write(&copy, [1; 10]).unwrap();
    let local = identify(&format!("candle:{}", copy.display()));
    assert_eq!(local.identity.content, planned.identity.content);
    let named = identify("candle:org/model/a.gguf");
    assert_eq!(named.identity.name, format!("candle:org/model/a.gguf@{FIRST}"));
    assert_eq!(named.identity.content, planned.identity.content);
}

#[test]
fn without_a_network_the_cache_serves() {
    let hub = start(Site::default());
    let model = hub.fetch("org/model").unwrap();
    let gone =
        HubSettings { endpoint: "http://127.0.0.1:9".parse().unwrap(), retries: 1, ..hub.settings.clone() };
    let ask =
        |settings: &HubSettings, name: &str| Hub::new(Some(settings.clone())).fetch(&name.parse().unwrap());
    assert_eq!(ask(&gone, "org/model").unwrap(), model);
    let error = ask(&gone, "org/other").unwrap_err().to_string();
    assert!(
        error.contains("(127.0.0.1:9: ")
            && error.contains("folder `org/other` not found")
            && error.contains("HF_ENDPOINT"),
        "{error}"
    );
    let offline = HubSettings { offline: true, ..hub.settings.clone() };
    let asked = hub.site.requests.lock().unwrap().len();
    assert_eq!(ask(&offline, "org/model").unwrap(), model);
    assert!(ask(&offline, "org/other").unwrap_err().to_string().contains("HF_HUB_OFFLINE"));
    assert_eq!(hub.site.requests.lock().unwrap().len(), asked);
}

#[test]
fn files_of_data_sets_are_kept_by_commit_in_the_cache_of_other_tools() {
    let data = BTreeMap::from([
        ("test.jsonl", b"{}".to_vec()),
        ("data/test-0.parquet", vec![7; 100_000]),
        ("train.jsonl", b"[]".to_vec()),
    ]);
    let hub = start(Site { data, breaks: AtomicUsize::new(1), ..Site::default() });
    let main = HubName::data_set("org/data", None).unwrap();
    let ask = |settings: &HubSettings, name: &HubName, file: &str| {
        Hub::new(Some(settings.clone())).fetch_data(name, file)
    };
    let requests = || hub.site.requests.lock().unwrap().len();
    let lines = ask(&hub.settings, &main, "test.jsonl").unwrap();
    assert_eq!(lines.name.to_string(), format!("datasets/org/data@{FIRST}"));
    let snapshot = hub.cache.path().join("datasets--org--data/snapshots").join(FIRST);
    assert_eq!(lines.path, snapshot.join("test.jsonl"));
    let table = ask(&hub.settings, &main, "data/test-0.parquet").unwrap();
    assert_eq!(table.path, snapshot.join("data/test-0.parquet"));
    assert_eq!(std::fs::read(&table.path).unwrap(), vec![7; 100_000]);
    assert_eq!(*hub.site.ranges.lock().unwrap(), ["bytes=50000-"], "the download resumes");
    let other = format!("HEAD /datasets/org/data/resolve/{FIRST}/train.jsonl");
    assert_eq!(hub.site.count(&other), 0, "only the named files");
    assert_eq!(hub.site.count(&other.replace("train", "test")), 1);
    let reference = hub.cache.path().join("datasets--org--data/refs/main");
    assert_eq!(std::fs::read_to_string(reference).unwrap(), FIRST);

    // A commit in the cache needs no requests, even if the branch has moved; neither does a branch without a network.
    let asked = requests();
    *hub.site.commit.lock().unwrap() = SECOND;
    assert_eq!(ask(&hub.settings, &lines.name, "test.jsonl").unwrap(), lines);
    let offline = HubSettings { offline: true, ..hub.settings.clone() };
    assert_eq!(ask(&offline, &main, "test.jsonl").unwrap(), lines);
    let error = ask(&offline, &main, "train.jsonl").unwrap_err().to_string();
    assert!(error.contains("no data set `org/data`") && error.contains("HF_HUB_OFFLINE"), "{error}");
    let gone =
        HubSettings { endpoint: "http://127.0.0.1:9".parse().unwrap(), retries: 1, ..hub.settings.clone() };
    assert_eq!(ask(&gone, &main, "test.jsonl").unwrap(), lines);
    let error = ask(&gone, &main, "train.jsonl").unwrap_err().to_string();
    assert!(error.contains("data set `org/data` not found in the cache, and the hub cannot be"), "{error}");
    assert_eq!(requests(), asked);
    let moved = ask(&hub.settings, &main, "test.jsonl").unwrap();
    assert_eq!((moved.name.commit(), lines.name.commit()), (Some(SECOND), Some(FIRST)));

    // A model of the same name is another repository.
    let error = hub.fetch("org/data").unwrap_err().to_string();
    assert!(error.contains("nor a model of that name"), "{error}");
    for (id, revision, file, words) in [
        ("org/data", None, "test.json", vec!["`test.json` not found in org/data"]),
        ("org/data", None, "other.jsonl", vec!["`other.jsonl` not found", "it has test.jsonl, train.jsonl"]),
        ("org/data", Some("v9"), "test.jsonl", vec!["`v9` not found in org/data"]),
        ("org/dta", None, "test.jsonl", vec!["data set `org/dta` not found on 127.0.0.1", "HF_TOKEN"]),
        ("org/data", None, "../test.jsonl", vec!["invalid file name `../test.jsonl`"]),
    ] {
        let error =
            ask(&hub.settings, &HubName::data_set(id, revision).unwrap(), file).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
}

#[test]
fn a_content_that_is_not_what_was_announced_is_not_kept() {
    let hub = start(Site { forged: Some(vec![7; 200_000]), ..Site::default() });
    let error = hub.fetch("org/model").unwrap_err();
    assert!(matches!(error, HubError::Damaged { .. }), "{error}");
    assert_eq!(hub.site.count("GET /large/"), 2);
    let kept = contents(&hub.cache.path().join("models--org--model/blobs"));
    assert!(
        kept.iter().all(|(path, content)| content.len() < 100 && !path.contains("incomplete")),
        "{kept:?}"
    );
}

#[test]
fn small_files_are_verified_as_well() {
    let hub = start(Site::default());
    let blobs = hub.cache.path().join("models--org--model/blobs");
    std::fs::create_dir_all(&blobs).unwrap();
    // As long as the file, but with another content.
    std::fs::write(blobs.join(format!("{}.incomplete", git_blob(b"{}"))), "[]").unwrap();
    let model = hub.fetch("org/model").unwrap();
    assert_eq!(std::fs::read(model.folder.join("config.json")).unwrap(), b"{}");
}

#[test]
fn refusals_say_what_to_do() {
    let hub = start(Site { gated: true, ..Site::default() });
    for (name, words) in [
        ("org/model", ["gated model", "/org/model", "HF_TOKEN"]),
        ("org/modle", ["neither a folder `org/modle`", "nor a model", "HF_TOKEN"]),
        ("org/model@v9", ["org/model", "not found", "v9"]),
    ] {
        let error = hub.fetch(name).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    let busy = HubSettings { longest_pause: Duration::from_millis(500), ..hub.settings.clone() };
    hub.site.busy.store(1, Ordering::SeqCst);
    let error = Hub::new(Some(busy)).fetch(&"org/model".parse().unwrap()).unwrap_err().to_string();
    assert!(error.contains("429") && error.contains("Retry-After: 1 s"), "{error}");
    let wrong = HubSettings { token: Some(ServerKey::new("hf_wrong_token")), ..hub.settings.clone() };
    let error = Hub::new(Some(wrong)).fetch(&"org/model".parse().unwrap()).unwrap_err().to_string();
    assert!(!error.contains("hf_wrong"), "{error}");
}

#[tokio::test]
async fn a_run_s_model_is_known_by_its_commit() {
    let hub = tokio::task::spawn_blocking(|| start(Site::default())).await.unwrap();
    let models =
        ModelRegistry::new(ModelsSettings { hub: Some(hub.settings.clone()), ..ModelsSettings::default() });
    let identify = |name: &str| models.identify(name, Role::Planner, Formulation::Iterative);
    let planned = identify("candle:org/model").unwrap();
    assert_eq!(planned.identity.name, format!("candle:org/model@{FIRST}"));
    let names: Vec<&str> = planned.files.iter().map(|file| file.name.as_str()).collect();
    assert_eq!(names, ["config.json", "model.safetensors", "tokenizer.json"]);
    // A worker finds the same model by that name, even if the branch has moved.
    *hub.site.commit.lock().unwrap() = SECOND;
    assert_eq!(identify(&planned.identity.name).unwrap(), planned);
    // A worker does not request a model without a commit from the hub.
    let worker =
        ModelsSettings { hub: Some(hub.settings.clone()), pinned_only: true, ..ModelsSettings::default() };
    let asked = hub.site.requests.lock().unwrap().len();
    let error = ModelRegistry::new(worker)
        .identify("candle:org/model", Role::Planner, Formulation::Iterative)
        .unwrap_err();
    assert!(error.to_string().contains("failed to read"), "{error}");
    assert_eq!(hub.site.requests.lock().unwrap().len(), asked);
    let error = identify("lumos:maths").unwrap_err().to_string();
    assert!(error.contains("ai2lumos/lumos_maths_plan_iterative"), "{error}");
    tokio::task::spawn_blocking(move || drop(hub)).await.unwrap();
}

#[tokio::test]
async fn base_and_adapter_are_known_by_their_commits() {
    let hub = tokio::task::spawn_blocking(|| start(Site::default())).await.unwrap();
    let settings = ModelsSettings { hub: Some(hub.settings.clone()), ..ModelsSettings::default() };
    let models = ModelRegistry::new(settings.clone());
    let identify =
        |models: &ModelRegistry, name: &str| models.identify(name, Role::Planner, Formulation::Iterative);
    let planned = identify(&models, "candle:org/model+org/adapter").unwrap();
    assert_eq!(planned.identity.name, format!("candle:org/model@{FIRST}+org/adapter@{FIRST}"));
    let names: Vec<&str> = planned.files.iter().map(|file| file.name.as_str()).collect();
    let files = ["adapter/adapter_config.json", "adapter/adapter_model.safetensors", "config.json"];
    assert_eq!(names, [&files[..], &["model.safetensors", "tokenizer.json"]].concat());
    assert_eq!(planned.bytes(), 205_000);
    assert_ne!(planned.identity.content, identify(&models, "candle:org/model").unwrap().identity.content);
    // The name of the adapter alone implies its base.
    assert_eq!(identify(&models, "candle:org/adapter").unwrap(), planned);
    // So does the path of an adapter in a folder.
    let folder = tempfile::tempdir().unwrap();
    for (name, content) in &hub.site.adapter {
        std::fs::write(folder.path().join(name), content).unwrap();
    }
    let here = folder.path().display();
    let local = identify(&models, &format!("candle:{here}")).unwrap();
    assert_eq!(local.identity.name, format!("candle:org/model@{FIRST}+{here}"));
    assert_eq!((&local.identity.content, &local.files), (&planned.identity.content, &planned.files));
    // A worker finds the same models by these names without requests, even if the branches have moved.
    *hub.site.commit.lock().unwrap() = SECOND;
    let worker = ModelRegistry::new(ModelsSettings { pinned_only: true, ..settings });
    let asked = hub.site.requests.lock().unwrap().len();
    assert_eq!(identify(&worker, &planned.identity.name).unwrap(), planned);
    assert_eq!(identify(&worker, &local.identity.name).unwrap(), local);
    assert!(identify(&worker, "candle:org/model+org/adapter").is_err());
    assert_eq!(hub.site.requests.lock().unwrap().len(), asked);
    // The base of an adapter may be unavailable, and quantized weights cannot be a base.
    let config = r#"{"base_model_name_or_path": "/scratch/base"}"#;
    std::fs::write(folder.path().join("adapter_config.json"), config).unwrap();
    for (name, words) in [
        (format!("candle:{here}"), ["/scratch/base", "candle:<base>+<adapter>"]),
        (format!("candle:model.gguf+{here}"), ["model.gguf", "float checkpoint"]),
        ("candle:org/model/q8.gguf@main+org/adapter".to_owned(), ["org/model/q8.gguf", "float checkpoint"]),
        ("candle:org/model+adapter.gguf".to_owned(), ["adapter.gguf", "must be a folder"]),
        (format!("candle:{here}+{here}"), ["no weights in", "safetensors"]),
    ] {
        let error = identify(&models, &name).unwrap_err().to_string();
        assert!(words.iter().all(|word| error.contains(word)), "{error}");
    }
    tokio::task::spawn_blocking(move || drop(hub)).await.unwrap();
}
