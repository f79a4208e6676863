//! `lumos serve` for runs: the live page, its events, `/metrics`, and who may read them.

use std::collections::BTreeSet;

use reqwest::{Client, Response, StatusCode, header, redirect};
use serde_json::{Map, Value, json};

use crate::support::nats::{NatsServer, program};
use crate::support::paced::Paced;
use crate::support::{
    Fleet, Followed, PATIENCE, UNITS, block_on, finished_run, lumos, results, send, set_up_at,
};

/// A server of runs, as a process.
struct Live {
    process: Followed,
    url: String,
    client: Client,
}

impl Live {
    fn start(arguments: &str) -> Self {
        let mut process = lumos().args("serve --port 0").args(arguments).follow();
        let url = process.first_line();
        let client = Client::builder().redirect(redirect::Policy::none()).timeout(PATIENCE).build().unwrap();
        Self { process, url, client }
    }

    fn get(&self, path: &str) -> reqwest::RequestBuilder {
        self.client.get(format!("{}{path}", self.url.trim_end_matches('/')))
    }

    async fn status(&self, path: &str) -> StatusCode {
        self.get(path).send().await.unwrap().status()
    }

    async fn text(&self, path: &str) -> String {
        let response = self.get(path).send().await.unwrap();
        assert_eq!(response.status(), StatusCode::OK, "{path}");
        response.text().await.unwrap()
    }

    async fn events(&self, run: &str) -> Events {
        let response = self.get(&format!("/events?run={run}")).send().await.unwrap();
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        assert_eq!(response.headers()[header::CACHE_CONTROL], "no-store");
        assert_eq!(response.headers()["x-accel-buffering"], "no");
        Events { response, bytes: Vec::new(), fields: Map::new(), kinds: Vec::new() }
    }
}

/// The events of a page, and the state that it would show.
struct Events {
    response: Response,
    bytes: Vec<u8>,
    fields: Map<String, Value>,
    kinds: Vec<String>,
}

impl Events {
    /// Applies the next event. Returns false at the end of the stream.
    async fn next(&mut self) -> bool {
        loop {
            if let Some(end) = self.bytes.windows(2).position(|two| two == b"\n\n") {
                let event: Vec<u8> = self.bytes.drain(..end + 2).collect();
                let event = String::from_utf8(event).unwrap();
                let field =
                    |name: &str| event.lines().find_map(|line| line.strip_prefix(&format!("{name}: ")[..]));
                // A comment that keeps the connection open.
                let Some(kind) = field("event") else { continue };
                let data: Value = serde_json::from_str(field("data").unwrap()).unwrap();
                if let Value::Object(fields) = &data["fields"] {
                    self.fields.extend(fields.clone());
                }
                self.kinds.push(kind.to_owned());
                return true;
            }
            match self.response.chunk().await.unwrap() {
                Some(bytes) => self.bytes.extend(bytes),
                None => return false,
            }
        }
    }

    /// Applies events until a condition holds.
    async fn until(&mut self, what: &str, holds: impl Fn(&Map<String, Value>) -> bool) {
        while self.fields.is_empty() || !holds(&self.fields) {
            let goes_on = tokio::time::timeout(PATIENCE, self.next()).await;
            assert!(goes_on.expect("timed out"), "the events ended before {what}: {:#?}", self.fields);
        }
    }
}

fn units(fields: &Map<String, Value>, part: &str) -> u64 {
    fields["ledger"][part].as_u64().unwrap()
}

#[test]
fn a_finished_run_is_served_with_its_report_and_its_metrics() {
    let folder = tempfile::tempdir().unwrap();
    let run = finished_run(folder.path());
    let mut live = Live::start(&format!("'{}'", run.display()));
    block_on(async {
        let list = live.get("/").send().await.unwrap();
        let page = list.headers()[header::LOCATION].to_str().unwrap().to_owned();
        let key = page.trim_start_matches("/runs/").trim_end_matches('/').to_owned();
        assert_eq!((list.status(), key.len()), (StatusCode::SEE_OTHER, 16), "{page}");
        let response = live.get(&page).send().await.unwrap();
        let policy = response.headers()[header::CONTENT_SECURITY_POLICY].to_str().unwrap().to_owned();
        assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(response.headers()[header::X_CONTENT_TYPE_OPTIONS], "nosniff");
        let html = response.text().await.unwrap();
        for asset in ["/assets/live.js", "/assets/live.css"] {
            assert!(html.contains(asset) && !live.text(asset).await.is_empty());
        }

        // The figures are those of the report, and the stream ends with the run.
        let mut events = live.events(&key).await;
        while events.next().await {}
        assert_eq!(events.kinds, ["snapshot", "end"]);
        let fields = &events.fields;
        assert_eq!((&fields["state"], units(fields, "planned")), (&json!("complete"), UNITS));
        let report = results(&run);
        assert_eq!(fields["configurations"].as_array().unwrap().len(), 2);
        for (live, recorded) in fields["configurations"]
            .as_array()
            .unwrap()
            .iter()
            .zip(report["lumos"]["configurations"].as_object().unwrap().values())
        {
            assert_eq!(live["label"], recorded["label"]);
            for part in ["planned", "answered", "gave_up", "faulted", "outstanding"] {
                assert_eq!(live["ledger"][part], recorded["ledger"][part]);
            }
            let text = recorded["scores"].to_string();
            let value = live["score"]["value"].as_f64().unwrap();
            assert!(text.contains(&format!("\"value\":{}", json!(value))), "{value} {text}");
            assert_eq!(live["score"]["items"], 30);
        }

        let response = live.get("/metrics").send().await.unwrap();
        let kind = response.headers()[header::CONTENT_TYPE].to_str().unwrap().to_owned();
        assert_eq!(kind, "application/openmetrics-text; version=1.0.0; charset=utf-8");
        let metrics = response.text().await.unwrap();
        assert!(metrics.ends_with("\n# EOF\n"), "{metrics}");
        let sum = |name: &str| -> u64 {
            let lines =
                metrics.lines().filter(|line| line.starts_with(&format!("{name}{{run=\"sample\"")[..]));
            lines.map(|line| line.rsplit_once(' ').unwrap().1.parse::<u64>().unwrap()).sum()
        };
        assert_eq!((sum("lumos_units_planned"), sum("lumos_units_settled_total")), (UNITS, UNITS));
        assert_eq!((sum("lumos_units_outstanding"), sum("lumos_episode_duration_seconds_count")), (0, UNITS));
        assert!(sum("lumos_tokens_total") > 0 && metrics.contains("lumos_score_lower_ratio{"), "{metrics}");

        assert!(live.text(&format!("{page}report/")).await.contains("<!doctype html>"));
        std::fs::create_dir_all(run.join("report/data")).unwrap();
        std::fs::write(run.join("report/index.html"), "viewer").unwrap();
        std::fs::write(run.join("report/data/0000.js"), "chunk").unwrap();
        assert_eq!(live.text(&format!("{page}report/")).await, "viewer");
        assert_eq!(live.text(&format!("{page}report/data/0000.js")).await, "chunk");
        for missing in
            ["report/..%2fmanifest.json", "report/%2e%2e/manifest.json", "report/data/1.js", "manifest.json"]
        {
            assert_eq!(live.status(&format!("{page}{missing}")).await, StatusCode::NOT_FOUND, "{missing}");
        }
        assert_eq!(live.status("/runs/0123456789abcdef/").await, StatusCode::NOT_FOUND);
        assert_eq!(live.status("/events?run=0123456789abcdef").await, StatusCode::NOT_FOUND);
        let foreign = live.get(&page).header(header::HOST, "attacker.example").send().await.unwrap();
        assert_eq!(foreign.status(), StatusCode::MISDIRECTED_REQUEST);
        let posted = live.client.post(format!("{}metrics", live.url)).send().await.unwrap();
        assert_eq!(posted.status(), StatusCode::METHOD_NOT_ALLOWED);
    });
    assert_eq!(live.process.stop("-INT"), Some(0));
}

#[test]
fn a_run_in_progress_is_followed_until_an_interrupt_ends_the_page() {
    let folder = tempfile::tempdir().unwrap();
    let paced = Paced::start();
    let command =
        lumos().args("run --tasks svamp --limit 6 --batch-size 2 --json --model").arg(paced.model());
    let mut run = paced.admit(command.output(folder.path(), "paced"), 1).follow();
    run.until("settled", 1);
    let mut live = Live::start(&format!("'{}'", folder.path().join("paced").display()));
    block_on(async {
        let page =
            live.get("/").send().await.unwrap().headers()[header::LOCATION].to_str().unwrap().to_owned();
        let key = page.trim_start_matches("/runs/").trim_end_matches('/').to_owned();
        let mut events = live.events(&key).await;
        events.until("the recorded unit", |fields| units(fields, "outstanding") == 5).await;
        assert_eq!(events.fields["state"], "running");
        // What only the process of the run knows comes from its status file.
        events
            .until("the worker", |fields| {
                let worker = &fields["workers"][0];
                worker["device"] == "cpu" && worker["in_use"] == 2 && fields["in_flight"] == 5
            })
            .await;
        let fields = &events.fields;
        assert_eq!(fields["workers"][0]["concurrency"], 2);
        let since = fields["oldest"]["since_ms"].as_i64().unwrap();
        assert!(since >= fields["started_ms"].as_i64().unwrap(), "{fields:#?}");
        assert_eq!(fields["oldest"]["worker"], fields["workers"][0]["name"]);
        paced.open();
        events.until("all units", |fields| units(fields, "outstanding") == 0).await;
        assert_eq!(events.kinds.iter().filter(|kind| *kind == "snapshot").count(), 1);
        assert!(run.ended().code == 0 && !folder.path().join("paced/status.json").exists());
        while events.next().await {}
        assert_eq!(events.kinds.last().map(String::as_str), Some("end"));

        // A page of the list has no end of its own: it ends with the server.
        let mut list = live.events("").await;
        list.until("the run", |fields| fields["runs"][0]["state"] == "complete").await;
        send("-INT", live.process.id());
        assert!(!list.next().await, "{:?}", list.kinds);
    });
    assert_eq!(live.process.end(), Some(0));
}

#[test]
fn a_client_that_reads_nothing_does_not_delay_the_end() {
    use std::io::Write;

    let folder = tempfile::tempdir().unwrap();
    let runs = [finished_run(folder.path()).display().to_string()];
    let mut live = Live::start(&format!("'{}'", runs[0]));
    let address = live.url.trim_start_matches("http://").trim_end_matches('/').to_owned();
    let mut silent = std::net::TcpStream::connect(&address).unwrap();
    write!(silent, "GET /events HTTP/1.1\r\nHost: {address}\r\n\r\n").unwrap();
    assert_eq!(block_on(live.status("/metrics")), StatusCode::OK);
    assert_eq!(live.process.stop("-TERM"), Some(0));
}

#[test]
fn a_token_is_needed_beyond_loopback_and_never_shown() {
    let folder = tempfile::tempdir().unwrap();
    let run = finished_run(folder.path());
    let serve = || lumos().args("serve").arg(&run);
    serve()
        .args("--bind 0.0.0.0 --port 0")
        .exits(2)
        .reports(["needs a token", "hint: set LUMOS_SERVE_TOKEN"]);
    lumos().args("serve").exits(2).reports(["nothing to serve", "hint: "]);
    lumos().args("serve").arg(folder.path()).exits(2).reports(["manifest.json not found"]);
    lumos().args("serve no-such-run").exits(2).reports(["run `no-such-run` not found"]);

    let mut process = serve().args("--port 0").env("LUMOS_SERVE_TOKEN", "open-sesame").follow();
    let url = process.first_line();
    let client = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
    block_on(async {
        for path in ["", "metrics", "events", "assets/live.js", "?token=wrong"] {
            let refused = client.get(format!("{url}{path}")).send().await.unwrap();
            assert_eq!(refused.status(), StatusCode::UNAUTHORIZED, "{path}");
        }
        let metrics = client.get(format!("{url}metrics")).bearer_auth("open-sesame").send().await.unwrap();
        assert_eq!(metrics.status(), StatusCode::OK);
        let first = client.get(format!("{url}?token=open-sesame")).send().await.unwrap();
        assert_eq!(
            (first.status(), &first.headers()[header::LOCATION]),
            (StatusCode::SEE_OTHER, &"/".parse().unwrap())
        );
        let cookie = first.headers()[header::SET_COOKIE].to_str().unwrap();
        assert!(!cookie.contains("sesame") && cookie.contains("HttpOnly"), "{cookie}");
        let pair = cookie.split(';').next().unwrap().to_owned();
        let with_cookie =
            client.get(format!("{url}metrics")).header(header::COOKIE, pair).send().await.unwrap();
        assert_eq!(with_cookie.status(), StatusCode::OK);
    });
    assert_eq!(process.stop("-INT"), Some(0));
    let ended = process.ended();
    assert!(!format!("{}{}", ended.stdout, ended.stderr).contains("sesame"), "{ended}");
}

/// Each program has the user of deploy/nats for it.
#[test]
fn the_runs_and_workers_of_a_queue_are_served() {
    let Some(program) = program() else { return };
    let folder = tempfile::tempdir().unwrap();
    let nats = NatsServer::configured(&program, include_str!("../../deploy/nats/accounts.conf"));
    let as_user = |user: &str| nats.url().replace("//", &format!("//{user}:pass-of-{user}@"));
    set_up_at(&as_user("coordinator"));
    let fleet = |user: &str| Fleet::new(folder.path(), &as_user(user));
    let live = Live::start(&format!("--queue {}", as_user("observer")));
    let paced = Paced::start();
    let model = paced.model();
    let of_workers = fleet("worker");
    let workers = [(); 2].map(|()| of_workers.worker_with(paced.join(lumos()), "--concurrency 2"));
    let coordinator = format!("--tasks svamp --limit 8 --model {model}");
    let mut coordinator = fleet("coordinator").coordinator_with(paced.join(lumos()), "shared", coordinator);
    let names = |fields: &Map<String, Value>| -> BTreeSet<String> {
        let workers = fields["workers"].as_array().unwrap().iter();
        workers.map(|worker| worker["name"].as_str().unwrap().to_owned()).collect()
    };
    block_on(async {
        let mut list = live.events("").await;
        list.until("the run and both workers", |fields| {
            names(fields).len() == 2 && fields["runs"][0]["state"] == "running"
        })
        .await;
        let key = list.fields["runs"][0]["key"].as_str().unwrap().to_owned();
        let mut events = live.events(&key).await;
        events
            .until("units on the workers and on the queue", |fields| {
                let depth = json!({ "pending": 4, "unacknowledged": 4 });
                fields["oldest"].is_object() && fields["in_flight"] == 8 && fields["queue"] == depth
            })
            .await;
        let fields = &events.fields;
        assert!(names(fields).contains(fields["oldest"]["worker"].as_str().unwrap()));
        let metrics = live.text("/metrics").await;
        for line in ["lumos_queue_pending{run=\"shared\"} 4", "lumos_units_outstanding{run=\"shared\","] {
            assert!(metrics.contains(line), "{line} is missing in {metrics}");
        }
        assert_eq!(metrics.matches("lumos_worker_last_seen_timestamp_seconds{").count(), 2);

        // A worker that stops responding is visible by its heartbeat.
        let seen = |fields: &Map<String, Value>, name: &str| {
            let mut workers = fields["workers"].as_array().unwrap().iter();
            workers.find(|worker| worker["name"] == name).and_then(|one| one["last_seen_ms"].as_i64())
        };
        let name = names(fields).into_iter().next().unwrap();
        let before = seen(fields, &name).unwrap();
        events.until("the next heartbeat", |fields| seen(fields, &name) > Some(before)).await;
    });
    drop(workers);
    drop(live);
    coordinator.kill();
}
