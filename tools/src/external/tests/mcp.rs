//! A server of the shell that speaks as much of the protocol as is needed. `tests/it/mcp.rs` uses real servers.

use std::path::Path;

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
      for name in count refuse invalid throw exit hang large slow; do
        tools="$tools${tools:+, }{\"name\": \"$name\", \"description\": \"$name it\", \"inputSchema\": {\"type\": \"object\"}}"
      done
      say "\"result\": {\"tools\": [$tools]}" ;;
    *'"tools/call"'*)
      count=$((count + 1))
      case $line in
        *'"refuse"'*) say '"result": {"content": [{"type": "text", "text": "unknown city"}], "isError": true}' ;;
        *'"invalid"'*) say '"error": {"code": -32602, "message": "city is not a number"}' ;;
        *'"throw"'*) say '"error": {"code": -32603, "message": "no data for Kyoto"}' ;;
        *'"exit"'*) echo 'low on fuel' >&2; exit 3 ;;
        *'"hang"'*) ;;
        *'"large"'*) head -c 10000000 /dev/zero | tr '\0' x; echo ;;
        *'"slow"'*) # waits for a file, and replies with the number of the process
          while [ ! -e "$0.go" ]; do sleep 0.05; done
          say "\"result\": {\"content\": [{\"type\": \"text\", \"text\": \"$$\"}]}" ;;
        *) say "\"result\": {\"content\": [{\"type\": \"text\", \"text\": \"$count\"}]}" ;;
      esac ;;
  esac
done
"#;

fn tool(folder: &Path, script: &str, limits: ToolLimits) -> McpTool {
    let path = folder.join("server.sh");
    std::fs::write(&path, script).unwrap();
    let command = NamedCommand::parse(&format!("sh '{}'", path.display())).unwrap();
    McpTool::new("weather", Endpoint::Program(command.hashed().unwrap().clone()), limits)
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
    assert_eq!((operations.len(), operations[0].name.as_str()), (8, "count"));
    assert_eq!(tool.call(&call("count")).await, text("1"));
    assert_eq!(tool.call(&call("refuse")).await, refused("unknown city"));
    assert_eq!(tool.call(&call("invalid")).await, refused("city is not a number"));
    for (operation, part) in
        [("none", "no tool `none`; it has count, refuse"), ("throw", "no data for Kyoto")]
    {
        let fault = tool.call(&call(operation)).await.unwrap_err().to_string();
        assert!(fault.contains(part), "{operation}: {fault}");
    }
    assert_eq!(tool.call(&call("count")).await, text("5"), "the same process");
    for (operation, parts) in [
        ("exit", &["the program ended (exit status: 3)", "low on fuel"][..]),
        ("large", &["the reply is longer than 1 MiB"]),
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
    // Not with the line that it wrote at its start.
    assert_eq!(fault, "weather: no reply within 2 s");
    assert!(tool.call(&call("count")).await.is_ok());
    let later = r#"read -r line; echo '{"jsonrpc": "2.0", "error": {"code": -32022, "message": "no"}}'; cat"#;
    for (script, why) in [
        ("exit 3", "the program ended (exit status: 3)"),
        ("cat; sleep 600", "did not respond within"),
        (later, "may require a protocol revision later than 2025-11-25"),
    ] {
        let other = self::tool(folder.path(), script, limits);
        let fault = other.call(&call("count")).await.unwrap_err().to_string();
        assert!(fault.contains(why), "{fault}");
    }
}

#[tokio::test]
async fn the_handshake_requests_the_latest_revision_with_initialize() {
    let folder = tempfile::tempdir().unwrap();
    // Confirms the revision that is requested, and records the messages.
    let script = SERVER.replace("2025-06-18", r#"'"$version"'"#).replacen(
        "while read -r line; do\n",
        r#"while read -r line; do
  printf '%s\n' "$line" >> "$0.log"
  version=$(printf '%s' "$line" | sed -n 's/.*"protocolVersion":"\([^"]*\)".*/\1/p')
"#,
        1,
    );
    let tool = tool(folder.path(), &script, ToolLimits::default());
    assert_eq!(tool.operations().await.unwrap().len(), 8);
    let log = std::fs::read_to_string(folder.path().join("server.sh.log")).unwrap();
    let sent = |method: &str| log.lines().find(|line| line.contains(method)).unwrap();
    let initialize: serde_json::Value = serde_json::from_str(sent("\"initialize\"")).unwrap();
    assert_eq!(initialize["params"]["protocolVersion"], "2025-11-25");
    // Later revisions repeat the version in each request.
    assert!(!sent("\"tools/list\"").contains("2025-11-25"), "{log}");
}

#[tokio::test]
async fn a_list_of_tools_without_an_end_is_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let script = SERVER.replace("[$tools]}", r#"[$tools], \"nextCursor\": \"more\"}"#);
    let tool = tool(folder.path(), &script, ToolLimits::default());
    let fault = tool.operations().await.unwrap_err().to_string();
    assert!(fault.contains("its list of tools has more than 20 pages"), "{fault}");
}

#[tokio::test]
async fn a_program_that_has_changed_is_not_started() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tool(folder.path(), SERVER, ToolLimits::default());
    assert!(tool.call(&call("count")).await.is_ok());
    std::fs::write(folder.path().join("server.sh"), format!("{SERVER}# changed\n")).unwrap();
    let fault = tool.call(&call("exit")).await.unwrap_err().to_string();
    assert!(fault.contains("the program ended (exit status: 3)"), "{fault}");
    let fault = tool.call(&call("count")).await.unwrap_err().to_string();
    assert!(fault.contains("the program's files have changed since the tool was set up"), "{fault}");
}

#[tokio::test]
async fn a_call_that_hangs_does_not_end_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let limits = ToolLimits { call: Duration::from_secs(2), ..ToolLimits::default() };
    let tool = tool(folder.path(), SERVER, limits);
    let connection = tool.connection().await.unwrap();
    let arguments = json!({});
    let hanging = async {
        let fault = tool.call(&call("hang")).await.unwrap_err().to_string();
        std::fs::write(folder.path().join("server.sh.go"), "").unwrap();
        fault
    };
    let (fault, slow) = tokio::join!(hanging, connection.call("slow", &arguments));
    assert!(fault.starts_with("weather: no reply within 2 s"), "{fault}");
    let process = match slow {
        Ok(ToolReply::External(ExternalReply::Text(process))) => process,
        other => panic!("{other:?}"),
    };
    let text = |text: &str| Ok(ToolReply::External(ExternalReply::Text(text.to_owned())));
    assert_eq!(tool.call(&call("count")).await, text("1"), "another process");
    let is_running = || {
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
        status.contains("State:") && !status.contains("State:\tZ")
    };
    drop(connection);
    // The system ends it some time after the signal.
    for _ in 0..1000 {
        if !is_running() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!is_running(), "process {process} was not killed");
}

#[tokio::test]
async fn all_calls_in_progress_say_how_the_program_ended() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tool(folder.path(), SERVER, ToolLimits::default());
    tool.operations().await.unwrap();
    let (hang, exit) = (call("hang"), call("exit"));
    let (one, other) = tokio::join!(tool.call(&hang), tool.call(&exit));
    for fault in [one, other] {
        let fault = fault.unwrap_err().to_string();
        assert!(fault.contains("the program ended (exit status: 3)"), "{fault}");
    }
}
