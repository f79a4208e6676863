//! A server of this process.

use std::sync::Mutex;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use lumos_tasks::ExternalReply;
use serde_json::{Value, json};

use super::*;

type Requests = Arc<Mutex<Vec<Value>>>;

async fn answer(State(requests): State<Requests>, body: Bytes) -> (StatusCode, Vec<u8>) {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let operation = request["operation"].as_str().unwrap().to_owned();
    let before = {
        let mut requests = requests.lock().unwrap();
        requests.push(request.clone());
        requests.iter().filter(|one| one["operation"] == request["operation"]).count() - 1
    };
    let ok = |reply: Value| (StatusCode::OK, reply.to_string().into_bytes());
    match operation.as_str() {
        "forecast" => ok(json!({ "id": request["id"], "text": { "high": 31 } })),
        "refuse" => ok(json!({ "refused": "unknown city" })),
        "busy" if before == 0 => (StatusCode::SERVICE_UNAVAILABLE, Vec::new()),
        "busy" => ok(json!({ "text": "later" })),
        "garbage" => (StatusCode::OK, b"<html>".to_vec()),
        "large" => (StatusCode::OK, vec![b' '; 10_000_000]),
        "hang" => {
            tokio::time::sleep(Duration::from_secs(600)).await;
            ok(json!({}))
        }
        _ => (StatusCode::NOT_FOUND, Vec::new()),
    }
}

fn call(operation: &str) -> ToolCall {
    let arguments = json!({ "city": "Kyoto" });
    ToolCall::External { name: "weather".to_owned(), operation: operation.to_owned(), arguments }
}

async fn served(limits: ToolLimits) -> (ServiceTool, Requests) {
    let requests = Requests::default();
    let router = Router::new().route("/call", axum::routing::post(answer)).with_state(Arc::clone(&requests));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Url = format!("http://{}/call", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    let client = client("weather", &url, None, limits).unwrap();
    (ServiceTool { tool: "weather".to_owned(), url, client, requests: AtomicU64::new(0) }, requests)
}

#[tokio::test]
async fn a_server_replies_refuses_or_fails() {
    let (tool, requests) = served(ToolLimits::default()).await;
    let text = |text: &str| ToolReply::External(ExternalReply::Text(text.to_owned()));
    assert_eq!(tool.call(&call("forecast")).await, Ok(text(r#"{"high":31}"#)));
    let sent = requests.lock().unwrap()[0].clone();
    assert_eq!(sent, json!({ "id": 1, "operation": "forecast", "arguments": { "city": "Kyoto" } }));
    let refused = ToolReply::External(ExternalReply::Refused("unknown city".to_owned()));
    assert_eq!(tool.call(&call("refuse")).await, Ok(refused));
    assert_eq!(tool.call(&call("busy")).await, Ok(text("later")), "sent again");
    for (operation, why) in [
        ("garbage", "weather: invalid reply `<html>`"),
        ("large", "weather: the response is longer than 1048576 bytes"),
        ("none", "weather: status 404 Not Found"),
    ] {
        let fault = tool.call(&call(operation)).await.unwrap_err().to_string();
        assert!(fault.starts_with(why), "{fault}");
    }
}

#[tokio::test]
async fn a_server_that_does_not_respond_is_a_fault() {
    let limits = ToolLimits { call: Duration::from_millis(200), ..ToolLimits::default() };
    let (mut tool, requests) = served(limits).await;
    // Without the pauses between attempts.
    let settings = HttpSettings { timeout: Some(limits.call), retries: 0, ..HttpSettings::default() };
    tool.client = HttpClient::new(settings).unwrap();
    assert!(tool.call(&call("hang")).await.is_err());
    assert_eq!(requests.lock().unwrap().len(), 1);
}

#[test]
fn addresses_have_no_secrets() {
    for bad in ["http://user:hush@host/", "https://hush@host/", "http://", "https://host/#hush"] {
        let error = address(bad).unwrap_err().to_string();
        assert!(!error.contains("hush"), "{error}");
    }
    assert!(address("https://host:8443/call?units=metric").is_ok());
}
