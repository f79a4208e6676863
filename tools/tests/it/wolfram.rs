//! The WolframAlpha backend, with a local server.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::StatusCode;
use axum::http::header::LOCATION;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use lumos_tasks::{MathsReply, ToolCall, ToolReply};
use lumos_tools::{ToolFault, Tools, Wolfram, WolframSettings};

const SECRET: &str = "SECRET-APP-ID";

#[derive(Clone, Default)]
struct Server {
    requests: Arc<AtomicU32>,
    /// Requests to another host, with their headers.
    elsewhere: Arc<Mutex<Vec<String>>>,
    elsewhere_url: Arc<Mutex<String>>,
}

#[derive(serde::Deserialize)]
struct Parameters {
    input: String,
    appid: String,
}

/// Another host, which records its requests.
async fn record(State(server): State<Server>, request: Request) -> &'static str {
    server.elsewhere.lock().unwrap().push(format!("{} {:?}", request.uri(), request.headers()));
    "{}"
}

async fn answer(state: State<Server>, query: Query<Parameters>) -> Response {
    if query.input == "moved" {
        let place = state.elsewhere_url.lock().unwrap().clone();
        return (StatusCode::TEMPORARY_REDIRECT, [(LOCATION, place)]).into_response();
    }
    known(state, query).await.into_response()
}

async fn known(State(server): State<Server>, Query(query): Query<Parameters>) -> (StatusCode, String) {
    assert_eq!(query.appid, SECRET);
    let request = server.requests.fetch_add(1, Ordering::SeqCst);
    let pods = |pods: &str| format!(r#"{{"queryresult":{{"success":true,"error":false,"pods":[{pods}]}}}}"#);
    let body = match query.input.as_str() {
        "2 + 3" => pods(
            r#"{"title":"Input","subpods":[{"plaintext":"2 + 3"}]},
               {"title":"Result","primary":true,"subpods":[{"plaintext":"5"}]}"#,
        ),
        "Solve x^2 = 4" => pods(
            r#"{"title":"Results","primary":true,"subpods":[{"plaintext":"x = -2"},{"plaintext":"x = 2"}]}"#,
        ),
        "plot" => pods(r#"{"title":"Result","subpods":[{"plaintext":""}]}"#),
        "nothing" => r#"{"queryresult":{"success":false,"error":false}}"#.to_owned(),
        "key" => {
            r#"{"queryresult":{"success":false,"error":{"code":"1","msg":"Invalid appid SECRET-APP-ID"}}}"#
                .to_owned()
        }
        "busy at first" if request < 2 => return (StatusCode::TOO_MANY_REQUESTS, String::new()),
        "busy at first" => pods(r#"{"title":"Result","subpods":[{"plaintext":"done"}]}"#),
        "slow" => {
            tokio::time::sleep(Duration::from_secs(30)).await;
            String::new()
        }
        "large" => return (StatusCode::OK, " ".repeat(17 << 20)),
        "broken" => return (StatusCode::INTERNAL_SERVER_ERROR, String::new()),
        _ => return (StatusCode::FORBIDDEN, String::new()),
    };
    (StatusCode::OK, body)
}

async fn wolfram(server: Server) -> Wolfram {
    wolfram_within(server, Duration::from_secs(120)).await
}

async fn wolfram_within(server: Server, timeout: Duration) -> Wolfram {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}/v2/query", listener.local_addr().unwrap());
    let app = Router::new().route("/v2/query", get(answer)).with_state(server);
    tokio::spawn(async move { axum::serve(listener, app).await });
    Wolfram::new(WolframSettings {
        endpoint,
        timeout,
        retries: 2,
        pace: Duration::from_millis(20),
        ..WolframSettings::new(SECRET)
    })
    .unwrap()
}

async fn ask(wolfram: &Wolfram, query: &str) -> Result<MathsReply, ToolFault> {
    match wolfram.call(&ToolCall::Maths { query: query.to_owned() }).await? {
        ToolReply::Maths(reply) => Ok(reply),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn the_first_result_pod_is_read() {
    let wolfram = wolfram(Server::default()).await;
    assert_eq!(ask(&wolfram, "2 + 3").await, Ok(MathsReply::One("5".to_owned())));
    let roots = vec![Some("x = -2".to_owned()), Some("x = 2".to_owned())];
    assert_eq!(ask(&wolfram, "Solve x^2 = 4").await, Ok(MathsReply::Many(roots)));
    assert_eq!(ask(&wolfram, "plot").await, Ok(MathsReply::Empty));
    assert!(matches!(ask(&wolfram, "nothing").await, Ok(MathsReply::NoResult { .. })));
}

#[tokio::test]
async fn a_busy_service_is_asked_again_at_the_pace_set() {
    let server = Server::default();
    let wolfram = wolfram(server.clone()).await;
    let began = Instant::now();
    assert_eq!(ask(&wolfram, "busy at first").await, Ok(MathsReply::One("done".to_owned())));
    assert_eq!(server.requests.load(Ordering::SeqCst), 3);
    assert!(began.elapsed() >= Duration::from_millis(40), "three requests, 20 ms apart");
}

#[tokio::test]
async fn faults_are_faults_and_never_show_the_key() {
    let server = Server::default();
    let wolfram = wolfram(server.clone()).await;
    for query in ["broken", "key", "forbidden", "large"] {
        let fault = ask(&wolfram, query).await.unwrap_err().to_string();
        assert!(!fault.contains(SECRET), "{fault}");
    }
    // Three attempts if another one may succeed, otherwise one.
    assert_eq!(server.requests.load(Ordering::SeqCst), 3 + 1 + 1 + 1);
    let hasty = wolfram_within(Server::default(), Duration::from_millis(200)).await;
    let fault = ask(&hasty, "slow").await.unwrap_err().to_string();
    assert!(!fault.contains(SECRET), "{fault}");
    assert!(!format!("{wolfram:?}").contains(SECRET));
}

#[tokio::test]
async fn the_key_stays_with_the_service() {
    let server = Server::default();
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    *server.elsewhere_url.lock().unwrap() = format!("http://{}/x", listener.local_addr().unwrap());
    let app = Router::new().fallback(record).with_state(server.clone());
    tokio::spawn(async move { axum::serve(listener, app).await });
    let query = ToolCall::Maths { query: "moved".to_owned() };
    let fault = wolfram(server.clone()).await.call(&query).await.unwrap_err();
    assert!(fault.message.contains("307") && !fault.message.contains(SECRET), "{}", fault.message);
    assert_eq!(
        *server.elsewhere.lock().unwrap(),
        Vec::<String>::new(),
        "the key is in the address and in the referrer"
    );

    let unencrypted = WolframSettings {
        endpoint: "http://wolfram.example/v2/query".to_owned(),
        ..WolframSettings::new(SECRET)
    };
    let error = Wolfram::new(unencrypted).unwrap_err();
    assert!(error.contains("unencrypted") && error.contains("hint: ") && !error.contains(SECRET), "{error}");
}
