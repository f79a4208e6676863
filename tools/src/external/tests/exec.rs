//! Programs of the shell, so that the tests need nothing else.

use std::path::Path;
use std::time::Duration;

use lumos_tasks::ExternalReply;
use serde_json::json;

use super::*;

/// Creates a tool whose program is a shell script in a folder.
fn tool(folder: &Path, script: &str, limits: ToolLimits) -> ExecTool {
    let path = folder.join("tool.sh");
    std::fs::write(&path, script).unwrap();
    ExecTool::new("weather", command(&format!("sh '{}'", path.display())), limits)
}

fn command(text: &str) -> HashedCommand {
    NamedCommand::parse(text).unwrap().hashed().unwrap().clone()
}

fn limits() -> ToolLimits {
    ToolLimits { concurrency: 1, ..ToolLimits::default() }
}

fn call(operation: &str) -> ToolCall {
    let arguments = json!({ "city": "Kyoto" });
    ToolCall::External { name: "weather".to_owned(), operation: operation.to_owned(), arguments }
}

async fn text(tool: &ExecTool, operation: &str) -> String {
    match tool.call(&call(operation)).await {
        Ok(ToolReply::External(ExternalReply::Text(text))) => text,
        other => panic!("{other:?}"),
    }
}

async fn fault(tool: &ExecTool, operation: &str) -> String {
    tool.call(&call(operation)).await.unwrap_err().to_string()
}

/// Replies with the number of requests of its process, unless the operation asks for something else.
const COUNTING: &str = r#"
count=0
while read -r line; do
  count=$((count + 1))
  case $line in
    *'"refuse"'*) echo '{"refused": "unknown city"}' ;;
    *'"exit"'*) echo 'low on fuel' >&2; exit 3 ;;
    *'"hang"'*) sleep 600 & wait ;;
    *'"garbage"'*) echo 'Traceback (most recent call last)' ;;
    *'"large"'*) head -c 10000000 /dev/zero | tr '\0' x; echo ;;
    *'"twice"'*) printf '{"text": "one"}\n{"text": "two"}\n' ;;
    *'"environment"'*) printf '{"text": "%s"}\n' "$(env | sort | cut -d= -f1 | tr '\n' ' ')" ;;
    *) echo "{\"text\": \"$count\"}" ;;
  esac
done
"#;

#[tokio::test]
async fn a_process_answers_calls_until_it_fails() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tool(folder.path(), COUNTING, limits());
    assert_eq!(text(&tool, "count").await, "1");
    let refused = tool.call(&call("refuse")).await.unwrap();
    assert_eq!(refused, ToolReply::External(ExternalReply::Refused("unknown city".to_owned())));
    assert_eq!(text(&tool, "count").await, "3", "the same process");
    for (operation, why) in [
        ("exit", "weather: the program ended (exit status: 3); its last messages: low on fuel"),
        ("garbage", "weather: invalid reply `Traceback (most recent call last)`: "),
        ("large", "weather: the reply is longer than 1 MiB"),
    ] {
        let message = fault(&tool, operation).await;
        assert!(message.starts_with(why), "{message}");
        assert_eq!(text(&tool, "count").await, "1", "another process after {operation}");
    }
    assert!(tool.call(&ToolCall::Maths { query: "1".to_owned() }).await.is_err());
    tool.shut_down().await;
    assert!(tool.idle.lock().unwrap().is_empty());
}

#[tokio::test]
async fn a_line_without_a_request_is_not_taken_for_a_reply() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tool(folder.path(), COUNTING, limits());
    assert_eq!(text(&tool, "twice").await, "one");
    let message = fault(&tool, "count").await;
    assert_eq!(message, r#"weather: the program wrote `{"text": "two"}` without a request"#);
    assert_eq!(text(&tool, "count").await, "1", "another process");
}

#[tokio::test]
async fn a_program_that_hangs_is_killed_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let short = ToolLimits { call: Duration::from_millis(300), ..limits() };
    let script = COUNTING.replace(
        "sleep 600 & wait",
        &format!("sleep 600 & echo $! > '{}/child'; wait", folder.path().display()),
    );
    let tool = tool(folder.path(), &script, short);
    assert_eq!(fault(&tool, "hang").await, "weather: no reply within 0.3 s");
    let child = std::fs::read_to_string(folder.path().join("child")).unwrap();
    let is_running = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", child.trim())).unwrap_or_default();
        status.contains("State:") && !status.contains("State:\tZ")
    };
    // The system ends it some time after the signal.
    for _ in 0..1000 {
        if !is_running() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!is_running(), "process {child} was not killed");
    let patient = ExecTool { limits: limits(), ..tool };
    assert_eq!(text(&patient, "count").await, "1");
}

#[tokio::test]
async fn a_program_sees_no_variables_of_this_process() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tool(folder.path(), COUNTING, limits());
    let names = text(&tool, "environment").await;
    let mut names: Vec<&str> = names.split_whitespace().collect();
    // The shell sets these.
    names.retain(|name| !["_", "PWD", "OLDPWD", "SHLVL"].contains(name));
    assert_eq!(names, ["HOME", "LANG", "PATH", "TMPDIR"]);
}

#[tokio::test]
async fn a_program_has_a_memory_limit() {
    let folder = tempfile::tempdir().unwrap();
    let small = ToolLimits { memory: Some(64 << 20), ..limits() };
    let tool = tool(folder.path(), "ulimit -v >&2; exit 1", small);
    let message = fault(&tool, "any").await;
    assert!(message.ends_with("its last messages: 65536"), "{message}");
    let absent = ExecTool::new("weather", command("no-such-program-here"), limits());
    let message = fault(&absent, "any").await;
    assert!(message.starts_with("weather: failed to start no-such-program-here: "), "{message}");
}

#[tokio::test]
async fn a_program_that_has_changed_is_not_started() {
    let folder = tempfile::tempdir().unwrap();
    let tool = tool(folder.path(), COUNTING, limits());
    assert_eq!(text(&tool, "count").await, "1");
    std::fs::write(folder.path().join("tool.sh"), format!("{COUNTING}# changed\n")).unwrap();
    assert!(fault(&tool, "exit").await.contains("the program ended (exit status: 3)"), "its first process");
    let message = fault(&tool, "count").await;
    let why = "weather: the program's files have changed since the tool was set up; hint: restore the old files to \
               continue, or start another run with --name NAME";
    assert_eq!(message, why);
}

#[tokio::test]
async fn further_processes_start_while_all_are_busy() {
    let folder = tempfile::tempdir().unwrap();
    // Each process replies when another one has a request, too.
    let script = format!(
        "while read -r line; do touch '{0}/'$$; while [ $(ls '{0}' | wc -l) -lt 3 ]; do sleep 0.01; done; \
         echo '{{\"text\": \"met\"}}'; done",
        folder.path().display()
    );
    let tool = tool(folder.path(), &script, ToolLimits { concurrency: 2, ..limits() });
    let (one, other) = tokio::join!(text(&tool, "a"), text(&tool, "b"));
    assert_eq!((one.as_str(), other.as_str()), ("met", "met"));
    assert_eq!(tool.idle.lock().unwrap().len(), 2);
}
