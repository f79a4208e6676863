//! Tests of MCP over HTTP against an in-process server that implements the required part of the protocol.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Instant;

use axum::Router;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use lumos_http::HttpSettings;
use serde_json::{Value, json};

use super::*;

const KEY: &str = "SECRET-0123456789";

/// Replies with a text, unless the tool asks for something else. The first call of `busy` is rejected for a second.
async fn answer(State(busy): State<Arc<AtomicUsize>>, body: Bytes) -> Response {
    let request: Value = serde_json::from_slice(&body).unwrap();
    let id = &request["id"];
    let sent = |value: Value| ([(CONTENT_TYPE, "application/json")], value.to_string()).into_response();
    let reply = |result: Value| sent(json!({ "jsonrpc": "2.0", "id": id, "result": result }));
    let error = |id: &Value, code: i32, message: String| {
        sent(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": code, "message": message } }))
    };
    let operation = request["params"]["name"].as_str().unwrap_or_default();
    match (request["method"].as_str().unwrap_or_default(), operation) {
        ("initialize", _) => reply(json!({
            "protocolVersion": "2025-06-18",
            "capabilities": { "tools": {} },
            "serverInfo": { "name": "axum", "version": "1" },
        })),
        ("tools/list", _) => {
            let names = ["count", "busy", "accepted", "cut", "unread", "refuse", "throw", "garbage"];
            let tool = |name: &str| json!({ "name": name, "inputSchema": { "type": "object" } });
            reply(json!({ "tools": names.map(tool) }))
        }
        ("tools/call", "busy") if busy.fetch_add(1, Ordering::SeqCst) == 0 => {
            (StatusCode::TOO_MANY_REQUESTS, [(RETRY_AFTER, "1")]).into_response()
        }
        ("tools/call", "cut") => {
            let change = r#"{"jsonrpc": "2.0", "method": "notifications/tools/list_changed"}"#;
            ([(CONTENT_TYPE, "text/event-stream")], format!("data: {change}\n\n")).into_response()
        }
        ("tools/call", "unread") => error(&Value::Null, -32700, "not JSON".to_owned()),
        ("tools/call", "refuse") => error(id, -32602, format!("unknown city {KEY}")),
        ("tools/call", "throw") => error(id, -32603, format!("wrong key {KEY}")),
        ("tools/call", "garbage") => format!("<html>{KEY}").into_response(),
        ("tools/call", "count" | "busy") => reply(json!({ "content": [{ "type": "text", "text": "31" }] })),
        // Also notifications.
        _ => StatusCode::ACCEPTED.into_response(),
    }
}

/// Refuses `initialize`, like a server that supports only later revisions.
async fn reject() -> Response {
    let error = json!({ "jsonrpc": "2.0", "error": { "code": -32022, "message": "unsupported" } });
    (StatusCode::BAD_REQUEST, [(CONTENT_TYPE, "application/json")], error.to_string()).into_response()
}

async fn served(path: &str, settings: HttpSettings) -> McpTool {
    let busy = Arc::new(AtomicUsize::new(0));
    let router = Router::new().route("/", post(answer)).route("/later", post(reject)).with_state(busy);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url: Url = format!("http://{}{path}", listener.local_addr().unwrap()).parse().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    // As `client` does with the limits of a tool.
    let limits = ToolLimits { call: settings.timeout.unwrap(), ..ToolLimits::default() };
    let key = settings.key.clone();
    let client = Arc::new(HttpClient::new(settings).unwrap());
    McpTool::new("weather", Endpoint::Http { url, client, key }, limits)
}

async fn call(tool: &McpTool, operation: &str) -> Result<ToolReply, String> {
    let (name, arguments) = ("weather".to_owned(), json!({ "city": "Kyoto" }));
    let call = ToolCall::External { name, operation: operation.to_owned(), arguments };
    tool.call(&call).await.map_err(|fault| fault.to_string())
}

fn text(text: &str) -> Result<ToolReply, String> {
    Ok(ToolReply::External(ExternalReply::Text(text.to_owned())))
}

#[tokio::test]
async fn a_call_takes_as_long_as_the_pause_that_the_server_asks_for() {
    let timeout = Some(Duration::from_millis(500));
    let tool = served("/", HttpSettings { timeout, ..HttpSettings::default() }).await;
    let began = Instant::now();
    assert_eq!(call(&tool, "busy").await, text("31"), "sent again");
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn another_connection_waits_for_the_pause_too() {
    let tool = served("/", HttpSettings { retries: 0, ..HttpSettings::default() }).await;
    assert_eq!(tool.operations().await.unwrap().len(), 8);
    let began = Instant::now();
    let fault = call(&tool, "busy").await.unwrap_err();
    assert!(fault.contains("status 429 Too Many Requests"), "{fault}");
    assert!(tool.connection.lock().await.is_none());
    assert_eq!(call(&tool, "count").await, text("31"));
    assert!(began.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn a_response_without_a_reply_is_a_fault() {
    let tool = served("/", HttpSettings::default()).await;
    for (operation, why) in [
        ("accepted", "(status 202 Accepted): missing reply to the request"),
        ("cut", "(status 200 OK): missing reply to the request"),
        ("unread", "-32700: not JSON"),
    ] {
        let fault = call(&tool, operation).await.unwrap_err();
        assert!(fault.contains(why), "{fault}");
        assert_eq!(call(&tool, "count").await, text("31"));
    }
}

#[tokio::test]
async fn messages_do_not_contain_the_key() {
    let key = Some(ServerKey::new(KEY));
    let tool = served("/", HttpSettings { key, ..HttpSettings::default() }).await;
    let refused = ExternalReply::Refused("unknown city [key]".to_owned());
    assert_eq!(call(&tool, "refuse").await, Ok(ToolReply::External(refused)));
    for (operation, why) in
        [("throw", "-32603: wrong key [key]"), ("garbage", "invalid response `<html>[key]`")]
    {
        let fault = call(&tool, operation).await.unwrap_err();
        assert!(fault.contains(why) && !fault.contains("SECRET"), "{fault}");
    }
}

#[tokio::test]
async fn a_server_without_a_handshake_is_reported() {
    let tool = served("/later", HttpSettings::default()).await;
    let fault = call(&tool, "count").await.unwrap_err();
    assert!(fault.contains("status 400 Bad Request"), "{fault}");
    assert!(fault.contains("may require a protocol revision later than 2025-11-25"), "{fault}");
}
