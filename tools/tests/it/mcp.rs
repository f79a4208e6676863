//! A real MCP server, the reference server `everything`, over standard streams and over HTTP.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use lumos_capabilities::{Capability, on_path, skip};
use lumos_tasks::{ExternalReply, ToolCall, ToolReply};
use lumos_tools::{ToolSets, Tools};
use serde_json::{Value, json};

/// Path of the server; `None` (and the test is skipped) without one.
#[track_caller]
fn server() -> Option<String> {
    let server = std::env::var("LUMOS_MCP_SERVER").ok().filter(|server| !server.is_empty());
    if server.is_none() || on_path("node").is_none() {
        skip(Capability::Mcp, "LUMOS_MCP_SERVER is not set, or node is not installed");
        return None;
    }
    server
}

async fn opened(backend: &str) -> Arc<dyn Tools> {
    let sets = ToolSets::default();
    sets.backend(&sets.identify("everything", backend).unwrap()).await.unwrap()
}

fn call(operation: &str, arguments: Value) -> ToolCall {
    ToolCall::External { name: "everything".to_owned(), operation: operation.to_owned(), arguments }
}

async fn is_used(tool: &dyn Tools) {
    let operations = tool.operations().await.unwrap();
    let sum = operations.iter().find(|one| one.name == "get-sum").unwrap();
    assert_eq!(sum.arguments["required"], json!(["a", "b"]));
    let text = |text: &str| Ok(ToolReply::External(ExternalReply::Text(text.to_owned())));
    let (sum, echo) =
        (call("get-sum", json!({ "a": 2, "b": 3 })), call("echo", json!({ "message": "Grüße" })));
    let (one, other) = tokio::join!(tool.call(&sum), tool.call(&echo));
    assert_eq!((one, other), (text("The sum of 2 and 3 is 5."), text("Echo: Grüße")));
    // Arguments that the server rejects are the agent's error.
    let refused = tool.call(&call("get-sum", json!({ "a": "two" }))).await;
    assert!(matches!(refused, Ok(ToolReply::External(ExternalReply::Refused(_)))), "{refused:?}");
    let fault = tool.call(&call("none", json!({}))).await.unwrap_err().to_string();
    assert!(fault.contains("no tool `none`"), "{fault}");
    assert_eq!(tool.call(&call("echo", json!({ "message": "a" }))).await, text("Echo: a"));
}

#[tokio::test]
async fn a_server_is_started_and_used() {
    let Some(server) = server() else { return };
    let tool = opened(&format!("mcp:node '{server}' stdio")).await;
    is_used(tool.as_ref()).await;
    // The server does not see the variables of this process.
    let ToolReply::External(ExternalReply::Text(variables)) =
        tool.call(&call("get-env", json!({}))).await.unwrap()
    else {
        panic!()
    };
    let variables: Value = serde_json::from_str(&variables).unwrap();
    let names: Vec<&str> = variables.as_object().unwrap().keys().map(String::as_str).collect();
    assert!(names.iter().all(|name| ["HOME", "LANG", "PATH", "TMPDIR"].contains(name)), "{names:?}");
    tool.shut_down().await;
}

struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test]
async fn a_server_is_used_over_http() {
    let Some(server) = server() else { return };
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut command = Command::new("node");
    command.arg(server).arg("streamableHttp").env("PORT", port.to_string());
    let _running = Running(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    for _ in 0..600 {
        if tokio::net::TcpStream::connect(("127.0.0.1", port)).await.is_ok() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let tool = opened(&format!("mcp:http://127.0.0.1:{port}/mcp")).await;
    is_used(tool.as_ref()).await;
    tool.shut_down().await;
}
