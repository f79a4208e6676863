//! Models of an OpenAI-compatible server, with a local server over HTTP. The model's name selects the
//! server's behaviour.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures::future::join_all;
use futures::stream;
use lumos_models::{ConcurrencyBounds, ModelsSettings, OpenAiSettings, Price, ServerKey};
use lumos_models::{ModelBackend, ModelError, ModelRegistry};
use lumos_tasks::{
    Behaviour, Completion, Configuration, ContentHash, Finish, Formulation, GenerationSettings, Input,
    Message, ModelIdentity, NanoDollars, PromptTemplate, Request, Role, Sampling, Stop, TemplatedPrompt,
};
use serde_json::{Value, json};

const KEY: &str = "sk-0123456789-secret-key";

#[derive(Clone, Default)]
struct Server {
    bodies: Arc<Mutex<Vec<Value>>>,
    in_flight: Arc<AtomicUsize>,
    most_in_flight: Arc<AtomicUsize>,
    elsewhere: Option<String>,
    /// Metrics, if the server has any.
    load: Option<&'static str>,
}

impl Server {
    fn bodies(&self) -> Vec<Value> {
        self.bodies.lock().unwrap().clone()
    }

    fn requests(&self) -> usize {
        self.bodies.lock().unwrap().len()
    }
}

fn reply(text: &str) -> Response {
    let usage = json!({"prompt_tokens": 1000, "completion_tokens": 10});
    Json(json!({"choices": [{"text": text, "finish_reason": "stop"}], "usage": usage})).into_response()
}

fn complaint(status: u16, message: &str) -> Response {
    let status = StatusCode::from_u16(status).unwrap();
    (status, Json(json!({"error": {"message": message}}))).into_response()
}

async fn complete(State(server): State<Server>, headers: HeaderMap, Json(body): Json<Value>) -> Response {
    let now = server.in_flight.fetch_add(1, Ordering::SeqCst) + 1;
    server.most_in_flight.fetch_max(now, Ordering::SeqCst);
    let request = {
        let mut bodies = server.bodies.lock().unwrap();
        bodies.push(body.clone());
        bodies.len()
    };
    let key = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let key = key.trim_start_matches("Bearer ").to_owned();
    let response = behave(&server, body["model"].as_str().unwrap(), request, &key, &body).await;
    server.in_flight.fetch_sub(1, Ordering::SeqCst);
    response
}

async fn behave(server: &Server, model: &str, request: usize, key: &str, body: &Value) -> Response {
    match model {
        "crowded" if server.in_flight.load(Ordering::SeqCst) > 3 => {
            complaint(429, "too many requests in progress")
        }
        "crowded" => {
            tokio::time::sleep(Duration::from_millis(10)).await;
            reply("done")
        }
        "chatty" => {
            let message = json!({"content": "\n```\nAssistant: R1 = Calculator(1)\n```\n"});
            let usage = json!({"prompt_tokens": 7, "completion_tokens": 3});
            let choice = json!({"message": message, "finish_reason": "length"});
            Json(json!({"choices": [choice], "usage": usage})).into_response()
        }
        "good" => reply(" Subgoal 1: add\nSubgoal 2"),
        "steady" => {
            tokio::time::sleep(Duration::from_millis(40)).await;
            reply("done")
        }
        "slow" => {
            tokio::time::sleep(Duration::from_secs(5)).await;
            reply("late")
        }
        "busy" if request == 1 => {
            (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "1")], "slow down").into_response()
        }
        "busy" => reply("done"),
        "patient" => (StatusCode::TOO_MANY_REQUESTS, [(header::RETRY_AFTER, "7200")]).into_response(),
        "quota" => {
            let error = json!({"error": {"message": "pay", "code": "insufficient_quota"}});
            (StatusCode::TOO_MANY_REQUESTS, Json(error)).into_response()
        }
        "broken" => complaint(500, &format!("the key {key} broke it; {}***", &key[..10])),
        "truncated" => {
            let parts = [Ok("{\"choices\":[{\"te"), Err(io::Error::other("gone"))];
            Body::from_stream(stream::iter(parts)).into_response()
        }
        "huge" => {
            let chunk = "x".repeat(1 << 16);
            Body::from_stream(stream::iter((0..64).map(move |_| Ok::<_, io::Error>(chunk.clone()))))
                .into_response()
        }
        "encoding" => b"{\"choices\":[{\"text\":\"\xff\xfe\"}]}".to_vec().into_response(),
        "wrong key" => complaint(401, &format!("Incorrect API key provided: {key}")),
        "moved" => {
            let to = server.elsewhere.clone().unwrap();
            (StatusCode::TEMPORARY_REDIRECT, [(header::LOCATION, to)]).into_response()
        }
        "echo" => reply(&format!("your key is {key}")),
        "long" => complaint(400, "This model's maximum context length is 16 tokens."),
        "unknown" => complaint(404, "no such model"),
        "strict" if body.get("add_special_tokens").is_some() => {
            complaint(400, "Unrecognized request argument supplied: add_special_tokens")
        }
        "strict" if body.get("repeat_penalty").is_some() => {
            complaint(400, "Unrecognized request argument supplied: repeat_penalty")
        }
        "strict" => reply("done"),
        "later" if body.get("max_tokens").is_some() => {
            complaint(400, "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead.")
        }
        "later" => {
            let message = json!({"content": " Answer: Ada \n"});
            Json(json!({"choices": [{"message": message, "finish_reason": "stop"}]})).into_response()
        }
        other => panic!("{other}"),
    }
}

async fn metrics(State(server): State<Server>) -> Response {
    server.load.map_or_else(|| StatusCode::NOT_FOUND.into_response(), IntoResponse::into_response)
}

async fn listen(server: Server) -> String {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/v1", listener.local_addr().unwrap());
    let routes = Router::new()
        .route("/v1/completions", post(complete))
        .route("/v1/chat/completions", post(complete))
        .route("/metrics", get(metrics))
        .with_state(server);
    tokio::spawn(async move { axum::serve(listener, routes).await });
    url
}

fn settings() -> OpenAiSettings {
    OpenAiSettings {
        key: Some(ServerKey::new(KEY)),
        timeout: Duration::from_millis(1500),
        retries: 2,
        first_pause: Duration::from_millis(5),
        longest_pause: Duration::from_secs(3),
        largest_answer: 1 << 20,
        ..OpenAiSettings::default()
    }
}

fn configuration(models: BTreeMap<Role, ModelIdentity>) -> Configuration {
    Configuration {
        benchmark: "gsm8k".to_owned(),
        formulation: Formulation::Iterative,
        behaviour: Behaviour::Paper,
        max_rounds: 8,
        models,
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed: 0,
        prompts: ContentHash::of_bytes(b""),
        format: lumos_tasks::PromptFormat::default(),
        agent: None,
    }
}

/// Returns a server's model from the registry that workers use.
async fn model(name: &str, url: &str, settings: OpenAiSettings) -> Arc<dyn ModelBackend> {
    let models = ModelRegistry::new(ModelsSettings { openai: Some(settings), ..ModelsSettings::default() });
    let name = format!("openai:{name}@{url}");
    let identified = models.identify(&name, Role::Planner, Formulation::Iterative).unwrap();
    assert_eq!((identified.identity.name.as_str(), &identified.identity.dtype), (name.as_str(), &None));
    assert!(identified.files.is_empty());
    let configuration = configuration(BTreeMap::from([(Role::Planner, identified.identity.clone())]));
    models.get(&identified.identity, Role::Planner, &configuration).await.unwrap()
}

fn raw() -> Request {
    Request {
        role: Role::Planner,
        input: Input::Raw("<|user|>\nAdd.\n<|assistant|>\n".to_owned()),
        stop: Stop::Newline,
        max_new_tokens: 512,
        sampling: Sampling::Greedy,
        seed: 1,
    }
}

/// Sends a request to a model with this behaviour. Returns the result and the number of HTTP requests.
async fn ask(behaviour: &str) -> (Result<Completion, ModelError>, usize) {
    let server = Server::default();
    let url = listen(server.clone()).await;
    let answer = model(behaviour, &url, settings()).await.complete(raw()).await;
    if let Err(error) = &answer {
        let shown = format!("{error} {error:?}");
        assert!(!shown.contains(KEY) && !shown.contains(&KEY[..10]), "{shown}");
    }
    (answer, server.requests())
}

#[tokio::test]
async fn raw_text_is_completed_up_to_the_line_s_end() {
    let server = Server::default();
    let url = listen(server.clone()).await;
    let prices = BTreeMap::from([("good".to_owned(), Price { read: 0.5, written: 1.5 })]);
    let model = model("good", &url, OpenAiSettings { prices, ..settings() }).await;
    let completion = model.complete(raw()).await.unwrap();
    assert_eq!((completion.text.as_str(), completion.finish), (" Subgoal 1: add", Finish::Stop));
    assert_eq!((completion.prompt_tokens, completion.completion_tokens), (Some(1000), Some(10)));
    assert_eq!(completion.cost, Some(NanoDollars(515_000)));
    assert_eq!(server.bodies()[0]["prompt"], "<|user|>\nAdd.\n<|assistant|>\n");
}

#[tokio::test]
async fn a_busy_server_is_asked_again_when_it_says() {
    let began = Instant::now();
    let (answer, requests) = ask("busy").await;
    assert_eq!((answer.unwrap().text.as_str(), requests), ("done", 2));
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[tokio::test]
async fn what_may_pass_is_tried_again_and_then_a_fault() {
    for behaviour in ["slow", "broken", "truncated", "encoding"] {
        let (answer, requests) = ask(behaviour).await;
        assert!(matches!(answer, Err(ModelError::Failed(_))), "{behaviour}: {answer:?}");
        assert_eq!(requests, 3, "{behaviour}");
    }
}

#[tokio::test]
async fn what_will_not_pass_is_a_fault_at_once() {
    for (behaviour, says) in [
        ("patient", "7200 s"),
        ("quota", "quota exhausted"),
        ("huge", "longer than 1048576 bytes"),
        ("wrong key", "set OPENAI_API_KEY"),
        ("unknown", "/completions"),
    ] {
        let (answer, requests) = ask(behaviour).await;
        let Err(ModelError::Failed(message)) = answer else { panic!("{behaviour}: {answer:?}") };
        assert!(message.contains(says), "{message}");
        assert_eq!(requests, 1, "{behaviour}");
    }
}

#[tokio::test]
async fn a_prompt_that_is_too_long_is_refused() {
    let (answer, requests) = ask("long").await;
    assert!(matches!(answer, Err(ModelError::Refused(_))), "{answer:?}");
    assert_eq!(requests, 1);
}

#[tokio::test]
async fn a_key_that_is_a_part_of_a_message_does_not_change_how_an_error_is_handled() {
    let url = listen(Server::default()).await;
    let short = || OpenAiSettings { key: Some(ServerKey::new("x")), ..settings() };
    let answer = model("long", &url, short()).await.complete(raw()).await;
    let Err(ModelError::Refused(message)) = answer else { panic!("{answer:?}") };
    assert!(message.contains("conte[key]t length"), "{message}");
    let message = Message { role: "user".to_owned(), content: "Who?".to_owned() };
    let chat = Request { role: Role::Qa, input: Input::Chat(vec![message]), stop: Stop::Never, ..raw() };
    let completion = model("later", &url, short()).await.complete(chat).await.unwrap();
    assert_eq!(completion.text, "Answer: Ada");
}

#[tokio::test]
async fn a_server_that_refuses_the_key_is_left_alone() {
    let server = Server::default();
    let url = listen(server.clone()).await;
    let model = model("wrong key", &url, settings()).await;
    for _ in 0..5 {
        let error = model.complete(raw()).await.unwrap_err().to_string();
        assert!(error.contains("OPENAI_API_KEY_127_0_0_1_") && !error.contains(KEY), "{error}");
    }
    assert_eq!(server.requests(), 1);
}

#[tokio::test]
async fn redirects_are_not_followed() {
    let other = Server::default();
    let elsewhere = format!("{}/completions?{KEY}", listen(other.clone()).await);
    let server = Server { elsewhere: Some(elsewhere), ..Server::default() };
    let url = listen(server.clone()).await;
    let error = model("moved", &url, settings()).await.complete(raw()).await.unwrap_err().to_string();
    assert!(error.contains("not followed") && !error.contains(KEY), "{error}");
    assert_eq!((server.requests(), other.requests()), (1, 0));
}

#[test]
fn a_key_is_not_sent_unencrypted_to_another_machine() {
    let models = |key: Option<&str>| {
        let openai = OpenAiSettings { key: key.map(ServerKey::new), ..OpenAiSettings::default() };
        ModelRegistry::new(ModelsSettings { openai: Some(openai), ..ModelsSettings::default() })
    };
    let identify = |key, url: &str| {
        models(key).identify(&format!("openai:m@{url}"), Role::Planner, Formulation::Iterative)
    };
    for url in ["http://192.0.2.1:8000/v1", "http://attacker.example/v1", "http://127.0.0.1.example/v1"] {
        let error = identify(Some(KEY), url).unwrap_err().to_string();
        assert!(error.contains("unencrypted") && error.contains("hint: use https://"), "{error}");
        assert!(!error.contains(KEY), "{error}");
        identify(None, url).unwrap();
    }
    for url in
        ["https://attacker.example/v1", "http://localhost:8000/v1", "http://127.0.0.2/v1", "http://[::1]:1/"]
    {
        identify(Some(KEY), url).unwrap();
    }
}

#[tokio::test]
async fn a_key_in_a_reply_is_taken_out() {
    let (answer, _) = ask("echo").await;
    assert_eq!(answer.unwrap().text, "your key is [key]");
}

#[tokio::test]
async fn a_server_without_the_extension_is_asked_without_it() {
    let server = Server::default();
    let url = listen(server.clone()).await;
    let model = model("strict", &url, settings()).await;
    for _ in 0..2 {
        assert_eq!(model.complete(raw()).await.unwrap().text, "done");
    }
    let with = |field: &str| server.bodies().iter().map(|body| body.get(field).is_some()).collect::<Vec<_>>();
    assert_eq!(with("add_special_tokens"), [true, false, false, false]);
    assert_eq!(with("repeat_penalty"), [true, true, false, false]);
    assert_eq!(with("repetition_penalty"), [true; 4]);
}

#[tokio::test]
async fn chats_are_asked_in_the_server_s_words() {
    let server = Server::default();
    let url = listen(server.clone()).await;
    let message = Message { role: "user".to_owned(), content: "Who?".to_owned() };
    let request = Request { role: Role::Qa, input: Input::Chat(vec![message]), stop: Stop::Never, ..raw() };
    let completion = model("later", &url, settings()).await.complete(request).await.unwrap();
    assert_eq!((completion.text.as_str(), completion.cost), ("Answer: Ada", None));
    assert_eq!(server.bodies()[1]["max_completion_tokens"], 512);
}

#[tokio::test]
async fn conversations_go_to_the_chat_interface_and_come_back_as_a_line() {
    let server = Server::default();
    let url = listen(server.clone()).await;
    let messages: Vec<Message> = [("system", "Plan."), ("user", "Add.")]
        .map(|(role, content)| Message { role: role.to_owned(), content: content.to_owned() })
        .to_vec();
    let prompt = |template| {
        let (text, reply_start) = ("<|user|>\nAdd.\n<|assistant|>\n".to_owned(), "R1 = ".to_owned());
        Box::new(TemplatedPrompt { text, messages: messages.clone(), reply_start, template })
    };
    let chat = Request { input: Input::Templated(prompt(PromptTemplate::Chat)), ..raw() };
    let completion = model("chatty", &url, settings()).await.complete(chat).await.unwrap();
    assert_eq!((completion.text.as_str(), completion.finish), ("Calculator(1)", Finish::Stop));
    assert_eq!((completion.prompt_tokens, completion.completion_tokens), (Some(7), Some(3)));
    let body = server.bodies().remove(0);
    assert_eq!((&body["messages"], body.get("stop")), (&json!(messages), None));
    // Any other layout is a text for the completions interface.
    let rendered = Request { input: Input::Templated(prompt(PromptTemplate::Chatml)), ..raw() };
    model("good", &url, settings()).await.complete(rendered).await.unwrap();
    let body = server.bodies().remove(1);
    assert!(body["prompt"].as_str().unwrap().ends_with("<|im_start|>assistant\nR1 = "), "{body}");
    assert_eq!(body["stop"], json!(["\n"]));
}

/// Returns a server's model that is named by its backend too, and its registry.
async fn named(name: &str, settings: OpenAiSettings) -> (Arc<ModelRegistry>, Arc<dyn ModelBackend>) {
    let models = ModelRegistry::new(ModelsSettings { openai: Some(settings), ..ModelsSettings::default() });
    let identity = models.identify(name, Role::Planner, Formulation::Iterative).unwrap().identity;
    let planned = BTreeMap::from([(Role::Planner, identity.clone())]);
    let configuration = configuration(planned);
    let backend = models.get(&identity, Role::Planner, &configuration).await.unwrap();
    (Arc::new(models), backend)
}

#[tokio::test]
async fn a_storm_of_rejections_lowers_the_number_of_requests_and_fails_none() {
    let server = Server::default();
    let url = listen(server.clone()).await;
    let patient = OpenAiSettings { retries: 60, longest_pause: Duration::from_millis(40), ..settings() };
    let (models, backend) = named(&format!("openai:crowded@{url}"), patient).await;
    assert_eq!(models.servers(), [], "no requests yet");
    let answers = join_all((0..64).map(|_| backend.complete(raw()))).await;
    assert!(answers.iter().all(|answer| answer.as_ref().is_ok_and(|one| one.text == "done")));
    let used = models.servers().remove(0);
    assert!(url.contains(&used.server), "{used:?}");
    assert_eq!((used.least, used.most, used.successes), (1, 64, 64));
    assert!(used.rejections > 0 && used.decreases > 0 && used.lowest < 8, "{used:?}");
    assert_eq!(used.rejections, server.requests() as u64 - 64, "every rejection is counted once");
}

#[tokio::test]
async fn the_load_that_a_server_reports_lowers_the_number_of_requests() {
    let server = Server {
        load: Some("vllm:num_requests_running{a=\"b\"} 2\nvllm:num_requests_waiting 9\n"),
        ..Server::default()
    };
    let url = listen(server.clone()).await;
    let (models, backend) = named(&format!("openai:good@{url}"), settings()).await;
    for _ in 0..1_000 {
        backend.complete(raw()).await.unwrap();
        if models.servers()[0].has_load {
            break;
        }
        tokio::task::yield_now().await;
    }
    let used = models.servers().remove(0);
    assert!(used.has_load && used.lowest < 8 && used.rejections == 0, "{used:?}");
}

#[tokio::test]
async fn limits_hold_for_all_models_of_a_server() {
    let server = Server::default();
    let url = listen(server.clone()).await;
    let limited = OpenAiSettings { concurrency: ConcurrencyBounds::fixed(2), ..settings() };
    let model = model("steady", &url, limited).await;
    join_all((0..6).map(|_| model.complete(raw()))).await;
    assert_eq!(server.most_in_flight.load(Ordering::SeqCst), 2);

    let server = Server::default();
    let url = listen(server.clone()).await;
    let paced = OpenAiSettings { pace: Duration::from_millis(60), ..settings() };
    let model = self::model("good", &url, paced).await;
    let began = Instant::now();
    join_all((0..4).map(|_| model.complete(raw()))).await;
    assert!(began.elapsed() >= Duration::from_millis(180), "{:?}", began.elapsed());
}
