//! A server of the shell that speaks as much of the protocol as is needed. `tests/it/mcp.rs` uses real servers.

use std::path::Path;
use std::time::Duration;

use lumos_tasks::ExternalReply;
use serde_json::json;

use super::*;

/// Replies with the number of calls of its process, unless the tool asks for something else.
const SERVER: &str = r#"
count=0
say() { printf '{"jsonrpc": "2.0", "id": %s, %s}\n' "$id" "$1"; }
echo 'listening' # not a message
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case $line in
    *'"initialize"'*) say '"result": {"protocolVersion": "2025-06-18", "capabilities": {"tools": {}}, "serverInfo": {"name": "shell", "version": "1"}}' ;;
    *'"tools/list"'*)
      tools=
      for name in count refuse invalid exit hang large; do
        tools="$tools${tools:+, }{\"name\": \"$name\", \"description\": \"$name it\", \"inputSchema\": {\"type\": \"object\"}}"
      done
      say "\"result\": {\"tools\": [$tools]}" ;;
    *'"tools/call"'*)
      count=$((count + 1))
      case $line in
        *'"refuse"'*) say '"result": {"content": [{"type": "text", "text": "unknown city"}], "isError": true}' ;;
        *'"invalid"'*) say '"error": {"code": -32602, "message": "city is not a number"}' ;;
        *'"exit"'*) echo 'low on fuel' >&2; exit 3 ;;
        *'"hang"'*) ;;
        *'"large"'*) head -c 10000000 /dev/zero | tr '\0' x; echo ;;
        *) say "\"result\": {\"content\": [{\"type\": \"text\", \"text\": \"$count\"}]}" ;;
      esac ;;
  esac
done
"#;

fn tool(folder: &Path, script: &str, limits: ToolLimits) -> McpTool {
    let path = folder.join("server.sh");
    std::fs::write(&path, script).unwrap();
    let command = CommandLine::parse(&format!("sh '{}'", path.display())).unwrap();
    McpTool::new("weather", Server::Program(command), limits)
}

fn call(operation: &str) -> ToolCall {
    let arguments = json!({ "city": "Kyoto" });
    ToolCall::External { name: "weather".to_owned(), operation: operation.to_owned(), arguments }
}

#[tokio::test]
async fn a_server_answers_calls_until_it_fails() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tool(folder.path(), SERVER, ToolLimits::default());
    let text = |text: &str| Ok(ToolReply::External(ExternalReply::Text(text.to_owned())));
    let refused = |text: &str| Ok(ToolReply::External(ExternalReply::Refused(text.to_owned())));
    let operations = tool.operations().await.unwrap();
    assert_eq!((operations.len(), operations[0].name.as_str()), (6, "count"));
    assert_eq!(tool.call(&call("count")).await, text("1"));
    assert_eq!(tool.call(&call("refuse")).await, refused("unknown city"));
    assert_eq!(tool.call(&call("invalid")).await, refused("city is not a number"));
    assert_eq!(tool.call(&call("count")).await, text("4"), "the same process");
    for (operation, parts) in [
        ("exit", &["the program ended (exit status: 3)", "low on fuel"][..]),
        ("large", &["the reply is longer than 1 MiB"]),
        ("none", &["no tool `none`; it has count, refuse"]),
    ] {
        let fault = tool.call(&call(operation)).await.unwrap_err().to_string();
        assert!(parts.iter().all(|part| fault.contains(part)), "{operation}: {fault}");
        assert_eq!(tool.call(&call("count")).await, text("1"), "another process after {operation}");
    }
    tool.shut_down().await;
}

#[tokio::test]
async fn a_server_that_hangs_or_is_none_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let limits = ToolLimits { call: Duration::from_secs(2), ..ToolLimits::default() };
    let tool = tool(folder.path(), SERVER, limits);
    let fault = tool.call(&call("hang")).await.unwrap_err().to_string();
    assert!(fault.starts_with("weather: no reply within 2 s"), "{fault}");
    assert!(tool.call(&call("count")).await.is_ok());
    for (script, why) in
        [("exit 3", "the program ended (exit status: 3)"), ("cat; sleep 600", "did not respond within")]
    {
        let other = self::tool(folder.path(), script, limits);
        let fault = other.call(&call("count")).await.unwrap_err().to_string();
        assert!(fault.contains(why), "{fault}");
    }
}
