//! The model server over HTTP, with the built-in models: lumos's client receives the same replies from it as
//! from the engine in this process. Also tests streams, refused requests, clients that disconnect, and
//! shutdown.

use std::time::Duration;

use futures::StreamExt;
use lumos_http::HttpLimits;
use lumos_models::serve_model::{ApiKey, ServeSettings, ServedModel, serve_models};
use lumos_models::{
    BuiltinDomain, EngineSettings, ModelsSettings, OpenAiSettings, ServerKey, builtin_source,
};
use lumos_models::{ModelBackend, ModelRegistry};
use lumos_tasks::{
    Behaviour, Completion, Configuration, ContentHash, Episode, Formulation, GenerationSettings, Input,
    ItemId, Message, Next, Reply, Request, Role, Sampling, Setup, Stop, Task, WorkUnit,
};
use reqwest::{Client, Response, StatusCode};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

const KEY: &str = "sk-0123456789-secret-key";
const PROMPT: &str = "<|user|>\nPlease provide a reasonable subgoal-based plan to solve the given task.\nTask: Ann has \
                      3 apples and buys 4 more. How many apples does she have?; Initial \
                      Environment Description: None.\n<|assistant|>\n";

struct Server {
    url: String,
    drain: CancellationToken,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

/// Settings with which the built-in models are computed.
fn engine() -> EngineSettings {
    EngineSettings { threads: Some(1), ..EngineSettings::default() }
}

async fn start(settings: ServeSettings) -> Server {
    let engine = engine();
    let model = |role| {
        let source = builtin_source(BuiltinDomain::Maths, role, Formulation::Iterative).unwrap();
        ServedModel::load(format!("tiny-{role}"), source, engine).unwrap()
    };
    let models = vec![model(Role::Planner), model(Role::Grounder)];
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let (drain, stop) = (CancellationToken::new(), CancellationToken::new());
    let serving = tokio::spawn(serve_models(listener, models, settings, drain.clone(), stop.clone()));
    Server { url, drain, stop, serving }
}

impl Server {
    async fn post(&self, path: &str, body: &Value) -> Response {
        Client::new().post(format!("{}/{path}", self.url)).json(body).send().await.unwrap()
    }

    /// Returns the status, and the error's code and parameter.
    async fn refused(&self, path: &str, body: &Value) -> (u16, String, Value) {
        let response = self.post(path, body).await;
        let status = response.status().as_u16();
        let body: Value = response.json().await.unwrap();
        let error = &body["error"];
        assert!(error["message"].is_string() && error["type"].is_string(), "{body}");
        (status, error["code"].as_str().unwrap().to_owned(), error["param"].clone())
    }
}

/// Returns the data of a stream's events.
async fn events(response: Response) -> Vec<String> {
    assert!(response.headers()["content-type"].to_str().unwrap().starts_with("text/event-stream"));
    let text = response.text().await.unwrap();
    let data = text.split("\n\n").filter_map(|event| event.strip_prefix("data: "));
    data.map(str::to_owned).collect()
}

async fn backend(name: &str, role: Role) -> std::sync::Arc<dyn ModelBackend> {
    let models = ModelRegistry::new(ModelsSettings {
        openai: Some(OpenAiSettings { key: Some(ServerKey::new(KEY)), ..OpenAiSettings::default() }),
        engine: engine(),
        ..ModelsSettings::default()
    });
    let identified = models.identify(name, role, Formulation::Iterative).unwrap();
    models.get(&identified.identity, role, &configuration()).await.unwrap()
}

fn configuration() -> Configuration {
    Configuration {
        benchmark: "svamp".to_owned(),
        formulation: Formulation::Iterative,
        behaviour: Behaviour::Paper,
        max_rounds: 1,
        models: std::collections::BTreeMap::new(),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: ContentHash::of_bytes(b""),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    }
}

/// The first prompt of a role in an episode.
fn prompt(role: Role) -> String {
    let question = "Ann has 3 apples and buys 4 more. How many apples does she have?".to_owned();
    let item = ItemId { content: ContentHash::of_bytes(question.as_bytes()), occurrence: 0 };
    let unit = WorkUnit::new(item, Task::Maths { question }, Setup::None, configuration().into());
    let mut episode = Episode::start(&unit);
    loop {
        let Next::Generate(Request { input: Input::Raw(text), role: asked, .. }) = episode.next() else {
            panic!("the {role} is not asked")
        };
        if *asked == role {
            return text.clone();
        }
        let plan = Completion::recorded("Subgoal 1: Calculate how many apples Ann has.");
        episode.feed(Reply::Completion(plan)).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn our_own_client_gets_what_the_engine_gives_in_process() {
    let server = start(ServeSettings { key: Some(ApiKey::new(KEY)), ..ServeSettings::default() }).await;
    for role in [Role::Planner, Role::Grounder] {
        let here = backend("builtin:tiny", role).await;
        let there = backend(&format!("openai:tiny-{role}@{}", server.url), role).await;
        let request = Request {
            role,
            input: Input::Raw(prompt(role)),
            stop: Stop::Newline,
            max_new_tokens: 40,
            sampling: Sampling::Greedy,
            seed: 11,
        };
        let warm = Sampling::Random { temperature: 0.8, top_p: Some(0.9), top_k: None };
        let chat = Message { role: "user".to_owned(), content: "Ann has 3 apples.".to_owned() };
        let mut told = 0;
        for request in [
            request.clone(),
            Request { stop: Stop::Text("l".to_owned()), ..request.clone() },
            Request { stop: Stop::Never, ..request.clone() },
            Request {
                stop: Stop::Tokens(vec![40, 41, 42]),
                input: Input::Tokens(vec![300, 301, 302]),
                ..request.clone()
            },
            Request { sampling: warm, stop: Stop::Never, ..request.clone() },
            Request { input: Input::Chat(vec![chat]), stop: Stop::Never, ..request },
        ] {
            let is_chat = matches!(request.input, Input::Chat(_));
            let expected = here.complete(request.clone()).await.unwrap();
            let found = there.complete(request).await.unwrap();
            // The client strips replies of chats. Over HTTP the kinds of `finish` cannot be distinguished.
            let text = |completion: &Completion| match is_chat {
                true => completion.text.trim().to_owned(),
                false => completion.text.clone(),
            };
            assert_eq!(text(&found), text(&expected));
            assert_eq!(
                (found.prompt_tokens, found.completion_tokens),
                (expected.prompt_tokens, expected.completion_tokens)
            );
            told += expected.text.len();
        }
        assert!(told > 50, "the replies are too short: {told}");
        // The prompt is cached.
        let again = Request {
            role,
            input: Input::Raw(prompt(role)),
            stop: Stop::Never,
            max_new_tokens: 1,
            sampling: Sampling::Greedy,
            seed: 0,
        };
        assert!(there.complete(again).await.unwrap().cached_tokens.unwrap() > 0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_add_up_to_the_whole() {
    let server = start(ServeSettings::default()).await;
    let mut body = json!({
        "model": "tiny-planner", "prompt": [PROMPT, "Ünïcödé 🙂 "], "max_tokens": 24, "temperature": 0,
        "stop": ["zzz", "qqq"], "ignore_eos": true,
    });
    let whole: Value = server.post("completions", &body).await.json().await.unwrap();
    body["stream"] = json!(true);
    body["stream_options"] = json!({"include_usage": true});
    let events = events(server.post("completions", &body).await).await;
    assert_eq!(events.last().unwrap(), "[DONE]");
    let mut texts = [String::new(), String::new()];
    let mut usage = Value::Null;
    for event in &events[..events.len() - 1] {
        let chunk: Value = serde_json::from_str(event).unwrap();
        assert_eq!(chunk["object"], "text_completion");
        match chunk["choices"].as_array().unwrap().as_slice() {
            [] => usage = chunk["usage"].clone(),
            [choice] => {
                assert_eq!(chunk["usage"], Value::Null);
                texts[usize::try_from(choice["index"].as_u64().unwrap()).unwrap()]
                    .push_str(choice["text"].as_str().unwrap());
            }
            several => panic!("{several:?}"),
        }
    }
    for (index, text) in texts.iter().enumerate() {
        assert_eq!(whole["choices"][index]["text"], json!(text));
        assert_eq!(whole["choices"][index]["finish_reason"], "length");
    }
    assert!(events.len() > 10, "{} events", events.len());
    assert_eq!(usage["completion_tokens"], whole["usage"]["completion_tokens"]);
    assert_eq!(usage["prompt_tokens"], whole["usage"]["prompt_tokens"]);
    assert!(usage["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0);

    let body = json!({
        "model": "tiny-planner", "stream": true, "max_completion_tokens": 8, "temperature": 0,
        "messages": [{"role": "user", "content": "How many?"}],
    });
    let events = self::events(server.post("chat/completions", &body).await).await;
    let first: Value = serde_json::from_str(&events[0]).unwrap();
    assert_eq!(first["choices"][0]["delta"]["role"], "assistant");
    assert_eq!(first["object"], "chat.completion.chunk");
    assert!(first.get("usage").is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_answered_is_refused_in_openai_s_form() {
    let server =
        start(ServeSettings { max_body: 20_000, max_sequences: 4, ..ServeSettings::default() }).await;
    let ask = |model: &str, prompt: Value| json!({"model": model, "prompt": prompt, "max_tokens": 1});
    for (path, body, status, code, param) in [
        ("completions", ask("gpt-4", json!("a")), 404, "model_not_found", json!("model")),
        ("completions", ask("tiny-planner", json!("")), 400, "invalid_value", json!("prompt")),
        ("completions", ask("tiny-planner", json!([1, 99_999])), 400, "invalid_value", json!("prompt")),
        (
            "completions",
            ask("tiny-planner", json!(vec![3; 1024])),
            400,
            "context_length_exceeded",
            Value::Null,
        ),
        (
            "completions",
            ask("tiny-planner", json!(["a", "b", "c", "d", "e"])),
            400,
            "invalid_value",
            json!("prompt"),
        ),
        (
            "completions",
            ask("tiny-planner", json!("x".repeat(20_000))),
            413,
            "request_too_large",
            Value::Null,
        ),
        (
            "completions",
            json!({"model": "tiny-planner", "prompt": "a", "echo": true}),
            400,
            "unsupported_parameter",
            json!("echo"),
        ),
        (
            "chat/completions",
            json!({"model": "tiny-planner", "messages": []}),
            400,
            "invalid_value",
            json!("messages"),
        ),
        ("embeddings", json!({}), 404, "unknown_url", Value::Null),
        ("models", json!({}), 404, "unknown_url", Value::Null),
    ] {
        let expected = (status, code.to_owned(), param);
        assert_eq!(server.refused(path, &body).await, expected, "{path} {code}");
    }
    let url = format!("{}/completions", server.url);
    let plain = Client::new().post(&url).body("{}").send().await.unwrap();
    assert_eq!(plain.status(), StatusCode::UNSUPPORTED_MEDIA_TYPE);
    let broken =
        Client::new().post(&url).header("content-type", "application/json").body("{").send().await.unwrap();
    assert_eq!(broken.status(), StatusCode::BAD_REQUEST);
    // Refused before streaming starts, and therefore with an error status.
    let stream = json!({"model": "tiny-planner", "prompt": vec![3; 1024], "stream": true});
    assert_eq!(server.post("completions", &stream).await.status(), StatusCode::BAD_REQUEST);
}

#[tokio::test]
async fn models_are_listed_and_the_key_is_asked_for() {
    let server = start(ServeSettings { key: Some(ApiKey::new(KEY)), ..ServeSettings::default() }).await;
    let get = |path: &str, key: Option<&str>| {
        let request = Client::new().get(format!("{}{path}", server.url));
        match key {
            Some(key) => request.bearer_auth(key).send(),
            None => request.send(),
        }
    };
    assert_eq!(get("/models", None).await.unwrap().status(), StatusCode::UNAUTHORIZED);
    assert_eq!(get("/models", Some("wrong")).await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let list: Value = get("/models", Some(KEY)).await.unwrap().json().await.unwrap();
    assert_eq!(list["data"][1]["id"], "tiny-grounder");
    let one: Value = get("/models/tiny-planner", Some(KEY)).await.unwrap().json().await.unwrap();
    assert_eq!((&one["object"], &one["max_model_len"]), (&json!("model"), &json!(1024)));
    assert_eq!(get("/models/org/name", Some(KEY)).await.unwrap().status(), StatusCode::NOT_FOUND);
    let health = Client::new().get(server.url.replace("/v1", "/health")).send().await.unwrap();
    assert_eq!(health.status(), StatusCode::OK);
}

#[tokio::test(flavor = "multi_thread")]
async fn other_host_names_are_refused_without_a_key_on_loopback() {
    let server = start(ServeSettings { loopback_hosts_only: true, ..ServeSettings::default() }).await;
    let port = server.url.trim_end_matches("/v1").rsplit(':').next().unwrap();
    let body = json!({"model": "tiny-planner", "prompt": PROMPT, "max_tokens": 1}).to_string();
    let own = [format!("127.0.0.1:{port}"), format!("[::1]:{port}"), "LOCALHOST".to_owned()];
    // Requests without `Host` are accepted.
    let own = own.map(|host| format!("host: {host}\r\n")).into_iter().chain([String::new()]);
    for host in own {
        let said = exchange(&server, "POST /v1/completions", &host, &body).await;
        assert!(said.starts_with("HTTP/1.1 200"), "{host}: {said}");
    }
    let evil = "host: evil.example:8000\r\n";
    for host in [evil, "host: 127.0.0.1.evil.example\r\n", "host: localhost\r\nhost: evil.example\r\n"] {
        let said = exchange(&server, "POST /v1/completions", host, &body).await;
        assert!(said.starts_with("HTTP/1.1 421") && said.contains("LUMOS_API_KEY"), "{host}: {said}");
        assert!(said.contains("unknown_host") && said.contains("invalid_request_error"), "{said}");
    }
    for heading in ["GET /v1/models", "GET /health", "GET /", "PUT /v1/models"] {
        let said = exchange(&server, heading, evil, "").await;
        assert!(said.starts_with("HTTP/1.1 421"), "{heading}: {said}");
    }
    // With a key, all hosts are accepted.
    let server = start(ServeSettings { key: Some(ApiKey::new(KEY)), ..ServeSettings::default() }).await;
    let get = Client::new().get(format!("{}/models", server.url)).header("host", "evil.example:8000");
    assert_eq!(get.bearer_auth(KEY).send().await.unwrap().status(), StatusCode::OK);
}

/// A request whose reply fills the context.
fn long() -> Value {
    json!({"model": "tiny-planner", "prompt": PROMPT, "max_tokens": 900, "ignore_eos": true, "stream": true})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_goes_away_frees_its_place() {
    let server = start(ServeSettings { max_sequences: 1, ..ServeSettings::default() }).await;
    let mut first = server.post("completions", &long()).await.bytes_stream();
    first.next().await.unwrap().unwrap();
    let short = json!({"model": "tiny-planner", "prompt": PROMPT, "max_tokens": 1});
    let busy = server.post("completions", &short).await;
    assert_eq!((busy.status().as_u16(), busy.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    drop(first);
    for _ in 0..3000 {
        if server.post("completions", &short).await.status() == StatusCode::OK {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("the slot is still in use");
}

#[tokio::test(flavor = "multi_thread")]
async fn draining_answers_what_was_asked_and_stopping_tells_clients() {
    let server = start(ServeSettings::default()).await;
    let answer = server.post("completions", &long()).await;
    server.drain.cancel();
    let events = events(answer).await;
    assert_eq!(events.last().unwrap(), "[DONE]");
    server.serving.await.unwrap();
    assert!(Client::new().get(format!("{}/models", server.url)).send().await.is_err());

    let server = start(ServeSettings::default()).await;
    let mut answer = server.post("completions", &long()).await.bytes_stream();
    answer.next().await.unwrap().unwrap();
    server.drain.cancel();
    server.stop.cancel();
    let mut rest = String::new();
    while let Some(Ok(bytes)) = answer.next().await {
        rest.push_str(&String::from_utf8_lossy(&bytes));
    }
    assert!(rest.contains("shutting_down") && !rest.contains("[DONE]"), "{rest}");
    tokio::time::timeout(Duration::from_secs(300), server.serving).await.unwrap().unwrap();
}

/// Opens a connection and sends a text.
async fn connection(server: &Server, sent: &str) -> TcpStream {
    let address = server.url.trim_start_matches("http://").trim_end_matches("/v1");
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    stream
}

/// Returns what the server sends until it closes the connection.
async fn rest(mut stream: TcpStream) -> String {
    let mut said = Vec::new();
    let closed = tokio::time::timeout(Duration::from_secs(300), stream.read_to_end(&mut said));
    // A connection that is reset is also closed.
    let _ = closed.await.expect("the server did not close the connection");
    String::from_utf8_lossy(&said).into_owned()
}

/// Sends a request with a JSON body and these `Host` headers. Returns the response.
async fn exchange(server: &Server, heading: &str, hosts: &str, body: &str) -> String {
    let length = body.len();
    let sent = format!(
        "{heading} HTTP/1.1\r\n{hosts}content-type: application/json\r\nconnection: close\r\n\
         content-length: {length}\r\n\r\n{body}"
    );
    rest(connection(server, &sent).await).await
}

#[tokio::test(flavor = "multi_thread")]
async fn half_open_connections_are_closed_and_keep_nobody_out() {
    let http =
        HttpLimits { connections: 8, header_time: Duration::from_millis(300), ..HttpLimits::default() };
    let server = start(ServeSettings { http, ..ServeSettings::default() }).await;
    let sent = ["", "POST /v1/completions HT", "GET /health HTTP/1.1\r\nhost: a\r\nx: "];
    let mut half_open = Vec::new();
    for number in 0..48 {
        half_open.push(connection(&server, sent[number % sent.len()]).await);
    }
    // More connections than allowed: others are accepted when these are closed.
    let health = Client::new().get(server.url.replace("/v1", "/health")).send().await.unwrap();
    assert_eq!(health.status(), StatusCode::OK);
    for stream in half_open {
        rest(stream).await;
    }
    // A connection that is idle between two requests is also closed.
    let said = rest(connection(&server, "GET /health HTTP/1.1\r\nhost: a\r\n\r\n").await).await;
    assert!(said.starts_with("HTTP/1.1 200"), "{said}");
}

#[tokio::test(flavor = "multi_thread")]
async fn bodies_that_are_slow_or_too_many_are_refused() {
    let heading = |length: usize| {
        format!(
            "POST /v1/completions HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\nconnection: close\r\n\
             content-length: {length}\r\n\r\n"
        )
    };
    let body_time = Duration::from_millis(300);
    let server = start(ServeSettings { body_time, ..ServeSettings::default() }).await;
    let said = rest(connection(&server, &(heading(100) + "{\"model\"")).await).await;
    assert!(said.starts_with("HTTP/1.1 408") && said.contains("request_timeout"), "{said}");

    let server = start(ServeSettings { bodies: 10_000, ..ServeSettings::default() }).await;
    let slow = connection(&server, &(heading(20_000) + &" ".repeat(9_000))).await;
    let body = json!({"model": "tiny-planner", "prompt": "a", "max_tokens": 1, "user": "x".repeat(2_000)});
    // The bytes of the slow request arrive eventually.
    let busy = loop {
        let answer = server.post("completions", &body).await;
        if answer.status() != StatusCode::OK {
            break answer;
        }
    };
    assert_eq!((busy.status().as_u16(), busy.headers()["retry-after"].to_str().unwrap()), (503, "1"));
    drop(slow);
    while server.post("completions", &body).await.status() != StatusCode::OK {
        tokio::task::yield_now().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn prompts_are_refused_by_bytes_before_they_are_encoded() {
    let server = start(ServeSettings::default()).await;
    let ask = |prompt: String| json!({"model": "tiny-planner", "prompt": prompt, "max_tokens": 1});
    let chat = |content: String| json!({"model": "tiny-planner", "max_tokens": 1, "messages": [{"role": "user", "content": content}]});
    let long = "word ".repeat(200_000);
    for (path, body) in [("completions", ask(long.clone())), ("chat/completions", chat(long.clone()))] {
        let answer = server.post(path, &body).await;
        assert_eq!(answer.status(), StatusCode::BAD_REQUEST, "{path}");
        let error: Value = answer.json().await.unwrap();
        assert_eq!(error["error"]["code"], "context_length_exceeded");
        let message = error["error"]["message"].as_str().unwrap();
        // Refused by its size in bytes, before its tokens are counted.
        assert!(message.contains("maximum context length is 1024 tokens"), "{message}");
        assert!(message.contains("the prompt has 10") && message.contains(" bytes. Shorten"), "{message}");
    }
    // A text that may fit is encoded, and its tokens are counted.
    let answer = server.post("completions", &ask("a b ".repeat(600))).await;
    let error: Value = answer.json().await.unwrap();
    assert!(error["error"]["message"].as_str().unwrap().contains("tokens. Shorten"), "{error}");
    // The server's own limit applies even if the context is longer.
    let server = start(ServeSettings { max_prompt: 100, ..ServeSettings::default() }).await;
    let answer = server.post("completions", &ask("x".repeat(101))).await;
    assert_eq!(answer.status(), StatusCode::BAD_REQUEST);
    assert_eq!(server.post("completions", &ask("x".repeat(100))).await.status(), StatusCode::OK);
}
