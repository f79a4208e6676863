//! Planner over a server's chat interface and grounder in this process; prompts in other layouts than Lumos's.

use std::fs;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};

use serde_json::{Value, json};

use crate::support::model_server::Server;
use crate::support::nats::NatsServer;
use crate::support::{
    Fleet, Lumos, PATIENCE, Serving, content, lumos, replies, results, set_up, settled, unwrapped, wait_until,
};

/// Replies as a chat model does, with text around the reply.
fn planner(body: &Value) -> String {
    let last = body["messages"].as_array().unwrap().last().unwrap();
    assert_eq!(last["role"], "user");
    if last["content"].as_str().unwrap().contains("The executed result") {
        "\n\nYes, I will stop planning.\nAnything else?".to_owned()
    } else {
        "Assistant: Subgoal 1: Calculate the total amount.\n".to_owned()
    }
}

/// Holds replies from a number of requests on, until it is opened.
#[derive(Default)]
struct Gate {
    /// `None`: open.
    first_held: Mutex<Option<usize>>,
    opened: Condvar,
}

impl Gate {
    fn pass(&self, request: usize) {
        let held = self.first_held.lock().unwrap();
        let is_held = |held: &mut Option<usize>| held.is_some_and(|first| request >= first);
        drop(self.opened.wait_timeout_while(held, PATIENCE, is_held).unwrap());
    }

    fn set(&self, first_held: Option<usize>) {
        *self.first_held.lock().unwrap() = first_held;
        self.opened.notify_all();
    }
}

fn run(server: &Server, arguments: &str, folder: &Path, name: &str) -> Lumos {
    let models = format!("--planner openai-chat:tiny@{} --grounder builtin:tiny", server.url);
    lumos().args("run -v --tasks gsm8k").args(models).args(arguments).output(folder, name)
}

#[test]
fn a_run_with_a_chat_planner_goes_on_after_an_interrupt() {
    let folder = tempfile::tempdir().unwrap();
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let server = Server::start(move |request, body| {
        held.pass(request);
        Ok(planner(body))
    });
    let arguments = "--limit 10 --batch-size 2";
    let whole = run(&server, arguments, folder.path(), "whole").ok();
    let printed = unwrapped(&whole.stdout);
    assert!(printed.contains("interface: planner chat"), "{whole}");
    assert!(printed.contains("requests at once within 1 to 64"), "{whole}");
    {
        let bodies = server.state.bodies.lock().unwrap();
        let messages = bodies[0]["messages"].as_array().unwrap();
        assert_eq!(messages.len(), 14, "instructions, two examples and the task");
        assert_eq!(messages[0]["role"], "system");
        assert!(bodies.iter().all(|body| body.get("stop").is_none() && body["max_tokens"] == 512));
    }
    let whole_requests = server.requests();
    let held_from = whole_requests + 7;
    gate.set(Some(held_from));
    let mut interrupted = run(&server, arguments, folder.path(), "interrupted").follow();
    wait_until(|| server.requests() > held_from, || "no request is held".to_owned());
    interrupted.signal("-INT");
    interrupted.until_said("interrupted: waiting for");
    gate.set(None);
    assert_eq!(interrupted.end(), Some(130), "{}", interrupted.said());
    let folders = ["whole", "interrupted"].map(|name| folder.path().join(name));
    let rows: usize = content(&folders[1]).0.values().map(Vec::len).sum();
    assert!(rows < 10, "{rows} items are recorded");
    lumos().args("resume").arg(&folders[1]).ok();
    assert_eq!(content(&folders[0]), content(&folders[1]));
    let (samples, _) = content(&folders[0]);
    let row = &samples["gsm8k"][0];
    assert_eq!(replies(row)[0], "Subgoal 1: Calculate the total amount.");
    let prompt = row["trajectory"][0]["prompt"].as_str().unwrap();
    assert!(prompt.starts_with("<|user|>\n") && !prompt.contains("bakery"), "{prompt}");
    let written = results(&folders[0]);
    assert_eq!(written["lumos"]["interface"], json!({"planner": "chat"}));
    let used = &written["lumos"]["telemetry"]["computing"][0]["servers"][0];
    assert_eq!((&used["most"], &used["successes"]), (&json!(64), &json!(whole_requests)), "{used}");
}

#[test]
fn two_workers_send_chats_and_templates_as_one_machine_does() {
    let Some(nats) = NatsServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, body| Ok(planner(body)));
    let arguments = "--limit 12 --prompt-template chatml --exemplars-per-prompt 1 --max-new-tokens 24";
    run(&server, arguments, folder.path(), "alone").ok();
    set_up(&nats);
    let fleet = Fleet::new(folder.path(), &nats.url());
    let workers = [fleet.worker("--concurrency 2"), fleet.worker("--concurrency 2")];
    fleet.until("both workers", |status| status["workers"].as_array().unwrap().len() == 2);
    let models = format!("--planner openai-chat:tiny@{} --grounder builtin:tiny", server.url);
    let mut coordinator = fleet.coordinator("together", format!("-v --tasks gsm8k {models} {arguments}"));
    coordinator.exits(0);
    fleet.until("all units", |status| settled(status) == 12);
    for worker in workers {
        worker.drained();
    }
    let together = folder.path().join("together");
    assert_eq!(content(&folder.path().join("alone")), content(&together));
    let printed = unwrapped(&coordinator.said());
    assert!(printed.contains("prompt template: chatml, 1 worked examples per prompt"), "{printed}");
    assert!(printed.contains("requests at once within 1 to 64"), "{printed}");
}

#[test]
fn templates_are_checked_and_are_part_of_a_run_s_identity() {
    let folder = tempfile::tempdir().unwrap();
    let tiny = |template: &str, name: &str| {
        let run = lumos().args("run --tasks svamp --limit 2 --model builtin:tiny --max-new-tokens 8");
        run.args(format!("--prompt-template '{template}'")).output(folder.path(), name)
    };
    tiny("alpaca", "missing").exits(2).reports(["invalid prompt template `alpaca`", "chatml, llama-3, chat"]);
    tiny("chat", "chat").exits(2).reports(["the model has no chat template", "--prompt-template"]);
    let file = folder.path().join("prompts.jinja");
    let path = file.display().to_string();
    fs::write(&file, "{% for %}").unwrap();
    tiny(&path, "invalid").exits(2).reports(["invalid prompt template", "prompts.jinja"]);
    let template =
        "{% for message in messages %}[{{ message.role }}] {{ message.content }}\n{% endfor %}[assistant]";
    fs::write(&file, template).unwrap();
    tiny(&path, "run").ok();
    let run = folder.path().join("run");
    let format = |run: &Path| {
        let manifest: Value = serde_json::from_slice(&fs::read(run.join("manifest.json")).unwrap()).unwrap();
        manifest["configurations"][0]["configuration"]["format"].clone()
    };
    assert_eq!(format(&run), json!({"template": {"file": template}}));
    fs::write(&file, template.replace("[assistant]", "")).unwrap();
    tiny(&path, "run").exits(2).reports(["configurations"]);
    // The recorded template is used, whatever the file contains.
    lumos().args("resume").arg(&run).ok();
    tiny("tulu", "plain").ok();
    assert_eq!(format(&folder.path().join("plain")), Value::Null);
}

#[test]
fn prompts_are_shown_as_models_received_them() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, body| Ok(planner(body)));
    let arguments = "--limit 1 --prompt-template chatml --exemplars-per-prompt 1 --max-new-tokens 24";
    run(&server, arguments, folder.path(), "run").ok();
    let show = |more: &str| {
        let show = lumos().args("show run 0 --rendered").args(more);
        show.args("--output-path").arg(folder.path()).ok()
    };
    let lines = show("--json").lines();
    let sent = server.state.bodies.lock().unwrap();
    let of = |role: &str| lines.iter().filter(|line| line["role"] == role).collect::<Vec<_>>();
    let (planned, grounded) = (of("planner"), of("grounder"));
    assert!(!grounded.is_empty() && planned.len() == sent.len(), "{lines:?}");
    for (line, body) in planned.iter().zip(sent.iter()) {
        assert_eq!((&line["messages"], &line["template"]), (&body["messages"], &json!("chat")));
    }
    let text = grounded[0]["text"].as_str().unwrap();
    assert!(text.starts_with("<|im_start|>system\n") && text.contains("<|im_start|>assistant\n"), "{text}");
    assert!(grounded[0]["bos"].as_str().unwrap().starts_with("none; the model's tokenizer adds"));
    assert_eq!(grounded[0]["template"], "chatml");

    let printed = show("").stdout;
    assert!(printed.contains(text) && printed.contains("\nBOS: none; "), "{printed}");
    assert!(printed.contains("-- system\n") && printed.contains("openai-chat:tiny@"), "{printed}");

    // A model whose files changed since is refused.
    let model = folder.path().join("model");
    fs::create_dir(&model).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/assets/tiny/maths");
    for file in ["config.json", "tokenizer.json", "model.safetensors"] {
        fs::copy(source.join(file), model.join(file)).unwrap();
    }
    let template = "{% for message in messages %}{{ bos_token }}{{ message.content }}{% endfor %}";
    fs::write(model.join("chat_template.jinja"), template).unwrap();
    let own = lumos()
        .args("run --tasks svamp --formulation onetime --limit 1 --max-new-tokens 8 --model")
        .arg(&model);
    own.args("--prompt-template chat").output(folder.path(), "own").ok();
    let show = || lumos().args("show own 0 --rendered --output-path").arg(folder.path());
    show().ok().prints(["template chat", "BOS: "]);
    fs::write(model.join("chat_template.jinja"), format!("{template} ")).unwrap();
    show().exits(2).reports(["chat_template.jinja changed after the run", "--prompts"]);
}

/// Sends a request to another server and returns its reply.
fn forwarded(url: &str, body: &Value) -> String {
    // A thread of its own, because the caller runs on a runtime, which must not be blocked by another one.
    let send = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let request = reqwest::Client::new().post(format!("{url}/chat/completions")).json(body);
            request.send().await.unwrap().error_for_status().unwrap().json::<Value>().await.unwrap()
        })
    };
    let reply = std::thread::scope(|scope| scope.spawn(send).join().unwrap());
    reply["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// The planner is a Qwen2 behind `lumos serve-model`, the grounder a Qwen3 in the process of the run or of the workers.
#[test]
fn a_pair_of_qwens_goes_on_after_an_interrupt_and_runs_on_two_workers() {
    let Some(families) = lumos_capabilities::shared("golden/families") else { return };
    let serving = Serving::models(&[&format!("candle:{}", families.join("qwen2").display())]);
    let url = serving.url.clone();
    let gate = Arc::new(Gate::default());
    let held = Arc::clone(&gate);
    let server = Server::start(move |request, body| {
        held.pass(request);
        // The weights are random: the reply is made a subgoal, so that the grounder is asked, too.
        Ok(format!("Subgoal 1: {}", forwarded(&url, body).replace('\n', " ")))
    });
    let folder = tempfile::tempdir().unwrap();
    let arguments = || {
        let grounder = families.join("qwen3");
        format!(
            "--tasks gsm8k --limit 6 --batch-size 2 --max-new-tokens 12 --planner openai-chat:qwen2@{} --grounder '{}'",
            server.url,
            grounder.display()
        )
    };
    let run = |name: &str| lumos().args("run -v --threads 1").args(arguments()).output(folder.path(), name);
    run("whole").ok();
    let held_from = server.requests() + 2;
    gate.set(Some(held_from));
    let mut interrupted = run("interrupted").follow();
    wait_until(|| server.requests() > held_from, || "no request is held".to_owned());
    interrupted.signal("-INT");
    interrupted.until_said("interrupted: waiting for");
    gate.set(None);
    assert_eq!(interrupted.end(), Some(130), "{}", interrupted.said());
    let [whole, interrupted] = ["whole", "interrupted"].map(|name| folder.path().join(name));
    let recorded: usize = content(&interrupted).0.values().map(Vec::len).sum();
    assert!(recorded < 6, "{recorded} items are recorded");
    lumos().args("resume").arg(&interrupted).ok();
    let expected = content(&whole);
    assert_eq!(content(&interrupted), expected);
    if let Some(nats) = NatsServer::start() {
        set_up(&nats);
        let fleet = Fleet::new(folder.path(), &nats.url());
        let allowed = format!("--concurrency 2 --allow-path '{}'", families.display());
        let workers = [fleet.worker(&allowed), fleet.worker(&allowed)];
        fleet.until("both workers", |status| status["workers"].as_array().unwrap().len() == 2);
        let mut coordinator = fleet.coordinator("together", format!("-v {}", arguments()));
        coordinator.exits(0);
        fleet.until("all units", |status| settled(status) == 6);
        for worker in workers {
            worker.drained();
        }
        assert_eq!(content(&folder.path().join("together")), expected);
    }
    let rows = &expected.0["gsm8k"];
    assert_eq!(rows.len(), 6);
    for row in rows {
        let replies = replies(row);
        assert!(replies.len() >= 2 && replies[0].starts_with("Subgoal 1: "), "{replies:?}");
    }
}
