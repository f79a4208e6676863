//! Attacks on everything that lumos serves over HTTP: `serve-model`, `serve shop`, and the shop that a run
//! serves to browsers. None may use more than [`MOST_MEMORY`], and idle clients must not block other clients.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::{Mutex, mpsc};
use std::time::{Duration, Instant};

use super::{MOST_MEMORY, is_full, line, peak_memory};
use crate::support::model_server::Server;
use crate::support::{Followed, Serving, lumos, wait_until};

/// Number of threads that open connections.
const CONNECTING: usize = 16;

/// A server under attack.
struct Attacked {
    address: String,
    process: Followed,
}

impl Attacked {
    fn model() -> Self {
        Self::of(Serving::models(&["builtin:tiny"]))
    }

    fn shop() -> Self {
        Self::of(Serving::shop())
    }

    fn of(Serving { process, url, .. }: Serving) -> Self {
        let address = url.trim_start_matches("http://").split('/').next().unwrap().to_owned();
        Self { address, process }
    }

    /// Sends a request over a new connection. Returns status and headers, or an empty text if the server
    /// closed the connection.
    fn send(&self, method: &str, path: &str, kind: &str, body: &str) -> String {
        self.send_as("localhost", method, path, kind, body)
    }

    /// Sends a request with a `Host` header.
    fn send_as(&self, host: &str, method: &str, path: &str, kind: &str, body: &str) -> String {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let heading = format!(
            "{method} {path} HTTP/1.1\r\nhost: {host}\r\nconnection: close\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        // The server may respond and close before it has read the whole request.
        let _ = stream.write_all(heading.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer);
        String::from_utf8_lossy(&answer).into_owned()
    }

    /// Sends JSON and returns the status.
    fn ask(&self, path: &str, body: &str) -> String {
        status(&self.send("POST", path, "application/json", body))
    }

    /// Sends a form. Returns the status and the redirect location.
    fn form(&self, path: &str, body: &str) -> (String, Option<String>) {
        let answer = self.send("POST", path, "application/x-www-form-urlencoded", body);
        let place = answer.lines().find_map(|line| line.strip_prefix("location: ")).map(str::to_owned);
        (status(&answer), place)
    }

    /// Returns the peak memory in MiB after checking the limit.
    fn peak(&self) -> u64 {
        let peak = peak_memory(self.process.id()).expect("the server ended");
        assert!(peak < MOST_MEMORY, "{peak} MiB");
        peak
    }
}

fn status(answer: &str) -> String {
    answer.split(' ').nth(1).unwrap_or_default().to_owned()
}

fn completion(prompt: &str) -> String {
    format!("{{\"model\": \"tiny-grounder\", \"max_tokens\": 1, \"prompt\": {prompt}}}")
}

fn words(bytes: usize) -> String {
    format!("\"{}\"", "word ".repeat(bytes / 5))
}

#[test]
fn v05_long_prompts_to_serve_model() {
    let server = Attacked::model();
    let most = 2 << 20;
    let completions = "/v1/completions";
    let attacks = [
        (completions, completion(&words(8 << 20))),
        (completions, completion(&words(most - 1000))),
        (completions, completion(&format!("[{}]", vec![words(16_000); most / 16_100].join(",")))),
        (completions, completion(&format!("[{}3]", "3,".repeat(most / 2 - 100)))),
        (completions, completion(&format!("[{}[]]", "[],".repeat(most / 3 - 100)))),
        (completions, completion(&format!("[{}{{}}]", "{\"\":0},".repeat(most / 7 - 100)))),
        (completions, completion(&format!("[{}{{}}]", "[{}],".repeat(most / 5 - 100)))),
        (
            "/v1/chat/completions",
            format!(
                "{{\"model\": \"tiny-grounder\", \"messages\": [{{\"role\": \"user\", \"content\": {}}}]}}",
                words(most - 1000)
            ),
        ),
    ];
    // The first attack runs alone: 8 requests of 8 MB.
    let (eight, others) = attacks.split_at(1);
    for attacks in [eight, others] {
        let server = &server;
        std::thread::scope(|scope| {
            for (path, body) in attacks {
                for _ in 0..8 {
                    scope.spawn(move || {
                        let status = server.ask(path, body);
                        assert!(["", "400", "413", "503"].contains(&status.as_str()), "{status}");
                    });
                }
            }
        });
        let tried = match attacks {
            [_] => "8 × 8 MB prompts to serve-model at once".to_owned(),
            more => format!("{} bodies of 2 MiB to serve-model, 8 × each at once", more.len()),
        };
        line("V5", &tried, &format!("refused; {} MiB", server.peak()));
    }
    assert_eq!(server.ask(completions, &completion("\"How many?\"")), "200", "the server responds");
}

#[test]
fn pages_whose_name_resolves_to_this_machine_cannot_use_models() {
    let server = Attacked::model();
    for (host, expected) in [("evil.example:8000", "421"), (server.address.as_str(), "200")] {
        let body = completion("\"How many?\"");
        let answer = server.send_as(host, "POST", "/v1/completions", "application/json", &body);
        assert_eq!(status(&answer), expected, "{host}");
        assert_eq!(status(&server.send_as(host, "GET", "/v1/models", "text/plain", "")), expected, "{host}");
    }
}

#[test]
fn v05_forms_and_visits_of_serve_shop() {
    let server = Attacked::shop();
    // Forms with the maximum number of words, in more sessions than are kept; and forms that are too long.
    let (words, too_long) =
        ("query=".to_owned() + &"a+".repeat(16_000), "query=".to_owned() + &"a".repeat(1 << 20));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..55 {
                    let visit = server.form("/visits", "goal=0").1.expect("failed to start a session");
                    let (status, _) = server.form(&format!("{visit}/search"), &words);
                    assert!(["303", "404"].contains(&status.as_str()), "{status}");
                }
                let status = server.form("/visits/none/search", &too_long).0;
                assert!(["", "413"].contains(&status.as_str()), "{status}");
            });
        }
    });
    line(
        "V5",
        "440 sessions with searches of 32 KiB and 8 forms of 1 MiB to serve shop",
        &format!("the oldest sessions end, long forms are rejected; {} MiB", server.peak()),
    );
    assert_eq!(server.form("/visits", "goal=0").0, "303", "the server responds");
}

/// Returns the addresses that a process listens on.
fn listening(process: u32) -> Vec<String> {
    let Ok(open) = fs::read_dir(format!("/proc/{process}/fd")) else { return Vec::new() };
    let open: Vec<String> = open
        .filter_map(|file| fs::read_link(file.ok()?.path()).ok())
        .map(|file| file.to_string_lossy().into_owned())
        .collect();
    let sockets = fs::read_to_string(format!("/proc/{process}/net/tcp")).unwrap_or_default();
    let listening = sockets.lines().filter_map(|socket| {
        let fields: Vec<&str> = socket.split_whitespace().collect();
        let [_, local, _, "0A", _, _, _, _, _, inode, ..] = fields[..] else { return None };
        let (host, port) = local.split_once(':')?;
        let host = Ipv4Addr::from(u32::from_str_radix(host, 16).ok()?.swap_bytes());
        let is_own = open.contains(&format!("socket:[{inode}]"));
        is_own.then(|| format!("{host}:{}", u16::from_str_radix(port, 16).unwrap()))
    });
    listening.collect()
}

#[test]
fn v05_the_shop_that_a_run_serves_to_browsers() {
    // A model that never responds, so that the run continues, and a WebDriver server that receives no
    // requests meanwhile.
    let (answer, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let model = Server::start_listing(Some(&["m"]), move |_, _| {
        let _ = gate.lock().unwrap().recv();
        Err(503)
    });
    // Dropped before the model, whose response waits for it.
    let unanswered = answer;
    let driver = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = tempfile::tempdir().unwrap();
    let run = lumos().args(format!("run --tasks webshop --limit 1 --model openai:m@{}", model.url));
    let run = run.args(format!("--browser http://{}", driver.local_addr().unwrap()));
    let process = run.output(folder.path(), "shop").follow();
    wait_until(|| model.requests() > 0, || "the model received no request".to_owned());
    let addresses = listening(process.id());
    let [address] = &addresses[..] else { panic!("{addresses:?}") };
    assert!(address.starts_with("127.0.0.1:"), "{address}");
    let server = Attacked { address: address.clone(), process };
    let (words, too_long) =
        ("query=".to_owned() + &"a+".repeat(16_000), "query=".to_owned() + &"a".repeat(1 << 20));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    // Only the program itself may start sessions of this shop.
                    assert_eq!(server.form("/visits", "goal=0").0, "400");
                    assert_eq!(server.form("/visits/0123456789abcdef/search", &words).0, "404");
                }
                let status = server.form("/visits/0123456789abcdef/search", &too_long).0;
                assert!(["", "404", "413"].contains(&status.as_str()), "{status}");
            });
        }
    });
    line(
        "V5",
        "400 sessions, 400 searches of 32 KiB and 8 forms of 1 MiB to the shop that a run serves to browsers",
        &format!("no session starts, long forms are rejected; {} MiB", server.peak()),
    );
    half_open(&server, "the shop that a run serves to browsers", "/");
    drop(unanswered);
}

/// Opens connections that send nothing or endless headers, and checks that a valid request is answered
/// meanwhile.
fn half_open(server: &Attacked, name: &str, path: &str) {
    let count = if is_full() { 3000 } else { 600 };
    let sent = ["", "POST / HT", "GET / HTTP/1.1\r\nhost: a\r\nx: "];
    let address = server.address.parse().unwrap();
    let connect = move |part: usize| {
        let mut open = Vec::new();
        for number in (0..count).skip(part).step_by(CONNECTING) {
            // The system refuses connections that exceed its limits.
            if let Ok(mut stream) = TcpStream::connect_timeout(&address, Duration::from_millis(200)) {
                let _ = stream.write_all(sent[number % sent.len()].as_bytes());
                open.push(stream);
            }
        }
        open
    };
    let mut open: Vec<TcpStream> = std::thread::scope(|scope| {
        let parts: Vec<_> = (0..CONNECTING).map(|part| scope.spawn(move || connect(part))).collect();
        parts.into_iter().flat_map(|part| part.join().unwrap()).collect()
    });
    let asked = Instant::now();
    assert_eq!(status(&server.send("GET", path, "text/plain", "")), "200");
    let answered = asked.elapsed();
    let is_closed = |stream: &mut TcpStream| {
        stream.set_read_timeout(Some(Duration::from_millis(1))).unwrap();
        match stream.read_to_end(&mut Vec::new()) {
            Ok(_) => true,
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    };
    let closed = open.iter_mut().map(is_closed).filter(|closed| *closed).count();
    assert!(closed > 0, "no connection was closed");
    line(
        "V12",
        &format!("{count} half-open connections to {name}, {} accepted", open.len()),
        &format!(
            "another request is answered after {:.1} s, with {closed} closed; {} MiB",
            answered.as_secs_f64(),
            server.peak()
        ),
    );
}

#[test]
fn v12_half_open_connections() {
    std::thread::scope(|scope| {
        scope.spawn(|| half_open(&Attacked::model(), "serve-model", "/health"));
        scope.spawn(|| half_open(&Attacked::shop(), "serve shop", "/"));
    });
}
