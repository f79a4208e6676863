//! The whole program on a GPU without hardware: `engine/src/cuda/emulator/fake_driver.cpp` takes the place of CUDA's
//! libraries and computes with the engine's own kernels on the CPU.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use reqwest::Client;
use serde_json::{Value, json};

use crate::support::nats::NatsServer;
use crate::support::{
    Fleet, Lumos, PATIENCE, Serving, block_on, content, files, lumos, program, rows, unwrapped,
};

/// A command with a fake GPU; `None` (and the test is skipped) without a C++ compiler.
#[track_caller]
fn on_gpu() -> Option<Lumos> {
    Some(lumos().env("LD_LIBRARY_PATH", lumos_capabilities::fake_gpu()?))
}

/// One item with two built-in models: in this formulation, planner and grounder have different tokenizers.
const RUN: &str = "run --tasks svamp --formulation onetime --model builtin:tiny --limit 1";

/// A run of built-in models on the fake GPU.
fn run(folder: &Path, name: &str) -> Option<Lumos> {
    Some(on_gpu()?.args(RUN).args("--device cuda:0").output(folder, name))
}

/// The replies of a run by item and turn.
fn replies(folder: &Path) -> BTreeMap<String, Vec<Value>> {
    content(folder).0
}

/// The counts that the driver wrote when the program ended.
fn counts(log: &Path) -> BTreeMap<String, u64> {
    let text = std::fs::read_to_string(log).unwrap();
    let line = text.lines().last().unwrap();
    let pairs = line.split(' ').map(|pair| pair.split_once('=').unwrap());
    pairs.map(|(name, count)| (name.to_owned(), count.parse().unwrap())).collect()
}

#[test]
fn a_gpu_is_found_and_its_libraries_must_match_the_driver() {
    let doctor = || Some(on_gpu()?.args("doctor --json"));
    let Some(found) = doctor() else { return };
    let found = found.env("LUMOS_FAKE_GPUS", "2").ok().json();
    let expected = json!({
        "name": "cuda:1", "model": "Fake GPU 1", "compute_capability": "9.0", "memory_bytes": 80_000_000_000_u64,
        "driver": "13.0",
    });
    assert_eq!(found["gpus"][1], expected, "{found}");
    let none = |name: &str, value: &str| {
        let found = doctor().unwrap().env(name, value).ok().json();
        assert_eq!(found["gpus"], json!([]), "{found}");
        found["no_gpu"].as_str().unwrap().to_owned()
    };
    let old = none("LUMOS_FAKE_DRIVER", "12.4");
    for part in ["libcublas.so is of CUDA 13.0", "up to CUDA 12.4", "update the driver", "--libraries"] {
        assert!(old.contains(part), "{old}");
    }
    assert!(none("LUMOS_FAKE_DRIVER", "11.8").contains("CUDA 11.8, but 12.0 is required"));
    assert!(none("LUMOS_FAKE_GPUS", "0").contains("CUDA driver error"));
    // Libraries of an earlier version serve an older driver, and a GPU that NVRTC 13 does not know.
    let bench = |device: &str, more: &[(&str, &str)]| {
        let mut bench = on_gpu().unwrap().args(
            "bench engine --random-weights 1m --batch-sizes 1 --prompt-tokens 4 --new-tokens 2 --reuse off --json --device",
        );
        for (name, value) in more {
            bench = bench.env(name, value);
        }
        bench.arg(device)
    };
    bench("cuda", &[("LUMOS_FAKE_DRIVER", "12.4"), ("LUMOS_FAKE_LIBRARIES", "12.8")]).ok();
    // PTX for GPUs that are newer than NVRTC.
    bench("cuda", &[("LUMOS_FAKE_CAPABILITY", "13.0")]).ok();
    let unknown = bench("cuda", &[("LUMOS_FAKE_CAPABILITY", "7.0")]);
    unknown.exits(2).reports(["compute capability 7.0", "hint"]);
    let with_12 = |device: &str, capability: &str| {
        bench(device, &[("LUMOS_FAKE_CAPABILITY", capability), ("LUMOS_FAKE_LIBRARIES", "12.8")])
    };
    for supported in ["7.0", "7.5", "8.6"] {
        assert_eq!(with_12("auto", supported).ok().json()["device"], "cuda:0");
    }
    // A block of older GPUs has too little shared memory.
    let refused = with_12("cuda", "6.1").exits(2);
    refused.reports(["compute capability 6.1 is not supported: expected 7.0 or later", "hint"]);
    assert_eq!(with_12("auto", "6.1").ok().json()["device"], "cpu");
    // `auto` falls back to the CPU where the GPU cannot be used.
    let fallen = bench("auto", &[("LUMOS_FAKE_DRIVER", "12.4")]).ok().json();
    assert_eq!(fallen["device"], "cpu");
}

/// The limits take more than 2 GiB, the largest batch a part of the rest.
#[test]
fn a_bench_fits_into_every_card_and_copies_nothing_too_late() {
    let folder = tempfile::tempdir().unwrap();
    let bench = |bytes: &str, log: &Path, more: &str| {
        let bench =
            on_gpu()?.args("bench engine --random-weights 1m --device cuda:0 --json --prompt-tokens 20");
        Some(bench.args(more).env("LUMOS_FAKE_BYTES", bytes).env("LUMOS_FAKE_LOG", log))
    };
    for (index, (bytes, dtype)) in
        [("2800000000", "f32"), ("24000000000", "bf16"), ("141000000000", "f16")].into_iter().enumerate()
    {
        let log = folder.path().join(format!("log-{index}"));
        let more = format!("--dtype {dtype} --batch-sizes 1,4 --new-tokens 6");
        let Some(bench) = bench(bytes, &log, &more) else { return };
        let ended = bench.env("LUMOS_LOG", "info").ok();
        // Keys and values of the largest batch and no more: four sequences of 43 positions.
        assert!(ended.stderr.contains("pages=12 "), "{ended}");
        let report = ended.json();
        assert_eq!((&report["device"], report["cells"].as_array().unwrap().len()), (&json!("cuda:0"), 4));
        assert_eq!(report["cells"][1]["decoded_together"], true, "{report}");
        let counts = counts(&log);
        assert_eq!((counts["poisoned"], counts["unwritten"]), (0, 0), "{counts:?}");
        assert!(
            counts["launches"] > 0 && counts["graphs"] > 0 && counts["peak"] < bytes.parse().unwrap(),
            "{counts:?}"
        );
        // In float32 only the measurement of the peak rate uses cuBLAS, whose results depend on the batch.
        assert_eq!(counts["products"] == 11, dtype == "f32", "{counts:?}");
    }
    let log = folder.path().join("log");
    // A driver that records no launches gets them one by one.
    let plain = bench("24000000000", &log, "--dtype f16 --batch-sizes 4 --new-tokens 6 --reuse off").unwrap();
    plain.env("LUMOS_FAKE_GRAPHS", "0").ok();
    assert_eq!(counts(&log)["graphs"], 0);
    let small = bench("300000000", &log, "--batch-sizes 1").unwrap();
    small.exits(2).reports(["CUDA_ERROR_OUT_OF_MEMORY"]);
}

#[test]
fn a_run_equals_the_cpu_and_is_recorded_as_computed_on_a_gpu() {
    let folder = tempfile::tempdir().unwrap();
    let Some(gpu) = run(folder.path(), "gpu") else { return };
    let log = folder.path().join("log");
    let computed = gpu.env("LUMOS_FAKE_LOG", &log).ok().prints(["models computed on cuda:0"]);
    assert!(!computed.stderr.contains("fake driver:"), "{computed}");
    assert_eq!((counts(&log)["products"], counts(&log)["poisoned"]), (0, 0));
    // Most steps of decoding are started with one call.
    assert!(counts(&log)["graphs"] > 10, "{:?}", counts(&log));
    lumos().args(RUN).args("-q").output(folder.path(), "cpu").ok();
    let (gpu, cpu) = (folder.path().join("gpu"), folder.path().join("cpu"));
    let texts = |folder: &Path| -> Vec<Value> {
        let samples = files(folder, "samples_", ".jsonl");
        let replies = |row: Value| row["resps"].clone();
        samples.iter().flat_map(|file| rows(file)).map(replies).collect()
    };
    assert!(!texts(&gpu).is_empty());
    assert_eq!(texts(&gpu), texts(&cpu));
    // Another device is another identity: the two are never mixed.
    let identity = |folder: &Path| {
        let manifest = std::fs::read_to_string(folder.join("manifest.json")).unwrap();
        manifest.contains("f32+full-rotary+cuda")
    };
    assert!(identity(&gpu) && !identity(&cpu));
    lumos().args("verify --sample 1").arg(&gpu).exits(2).reports(["cuda:0"]);
    let verified = on_gpu().unwrap().args("verify --sample 1").arg(&gpu).ok();
    verified.prints(["1 units at batch size 1: 1 equal"]);
}

/// The cache of a single engine without a limit takes what weights and buffers leave.
#[test]
fn keys_and_values_take_what_the_buffers_leave() {
    let Some(complete) = on_gpu() else { return };
    let complete = complete.args("complete --model builtin:tiny --device cuda:0 --max-new-tokens 1 Hello");
    complete.env("LUMOS_FAKE_BYTES", "850000000").ok();
}

/// Two engines fit, or take turns; either way with the replies of the other.
#[test]
fn two_models_share_a_card_or_take_turns() {
    let folder = tempfile::tempdir().unwrap();
    let on = |name: &str, bytes: &str, more: &str| {
        let run = run(folder.path(), name)?.args(more).env("LUMOS_FAKE_BYTES", bytes);
        let run = run.ok();
        // The driver says which of its rules were broken.
        assert!(!run.stderr.contains("fake driver:"), "{run}");
        Some((run, folder.path().join(name)))
    };
    let Some((whole, first)) = on("whole", "24000000000", "") else { return };
    assert!(!whole.stdout.contains("loaded in turns"), "{whole}");
    let expected = replies(&first);
    let (turns, second) = on("turns", TOGETHER_TOO_SMALL, "").unwrap();
    turns.prints(["loaded in turns"]);
    assert_eq!(replies(&second), expected);
    let (_, third) = on("limited", "24000000000", "--memory 1GB").unwrap();
    assert_eq!(replies(&third), expected);
    // `auto` is the same card.
    let auto = on_gpu().unwrap().args(RUN).args("--device planner=auto,grounder=cuda:0");
    let auto = auto.output(folder.path(), "auto").env("LUMOS_FAKE_BYTES", TOGETHER_TOO_SMALL).ok();
    auto.prints(["loaded in turns"]);
    assert_eq!(replies(&folder.path().join("auto")), expected);
    let refused = run(folder.path(), "never").unwrap().args("--swap never");
    refused.env("LUMOS_FAKE_BYTES", TOGETHER_TOO_SMALL).exits(2).reports(["on cuda:0"]);
}

/// The status of a request for some tokens of a server's model.
fn status(server: &Serving, model: &str, tokens: u32) -> u16 {
    let body = json!({"model": model, "prompt": "Hello", "max_tokens": tokens, "ignore_eos": true});
    let request = Client::new().post(format!("{}/completions", server.url)).json(&body).timeout(PATIENCE);
    // Within the runtime, because the time limit of a request starts when it is created.
    block_on(async { request.send().await }).unwrap().status().as_u16()
}

/// The default cache of one model would take the whole card.
#[test]
fn the_models_of_a_server_share_a_card() {
    let on = |bytes: &str| Some(on_gpu()?.env("LUMOS_FAKE_BYTES", bytes));
    let Some(command) = on("3000000000") else { return };
    let server = Serving::models_of(command, "--device cuda:0", &["builtin:tiny"]);
    for model in ["tiny-planner-iterative", "tiny-planner-onetime", "tiny-grounder"] {
        assert_eq!(status(&server, model, 1), 200, "{model}");
    }
    let refused = on("1300000000").unwrap().args("serve-model --listen 127.0.0.1:0 --device cuda:0");
    let refused = refused.args("--model builtin:tiny").exits(2);
    refused.reports(["the models need ", "tiny-grounder ", "the memory of cuda:0", "--batch-size"]);
}

/// The first model that a worker loads leaves the other one its memory.
#[test]
fn two_models_of_a_worker_take_turns() {
    let Some(worker) = on_gpu() else { return };
    let Some(nats) = NatsServer::start() else { return };
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "alone").unwrap().ok();
    let fleet = Fleet::new(folder.path(), &nats.url());
    let worker = fleet.worker_with(worker.env("LUMOS_FAKE_BYTES", TOGETHER_TOO_SMALL), "--device cuda:0");
    let arguments = format!("{} --device cuda:0", RUN.trim_start_matches("run "));
    let mut coordinator = fleet.coordinator_with(on_gpu().unwrap(), "together", arguments);
    coordinator.exits(0);
    let worker = worker.drained();
    assert!(!worker.contains("fake driver:"), "{worker}");
    let said = unwrapped(&coordinator.said());
    assert!(said.contains("loaded in turns"), "{said}\n{worker}");
    assert_eq!(replies(&folder.path().join("together")), replies(&folder.path().join("alone")));
}

/// Families that the kernels do not compute are refused by name.
#[test]
fn other_families_are_refused_by_name() {
    for (shape, architecture) in [
        ("qwen3-1m", "Qwen3ForCausalLM"),
        ("gemma3-1m", "Gemma3ForCausalLM"),
        ("moe-1m", "Qwen3MoeForCausalLM"),
    ] {
        let Some(bench) = on_gpu() else { return };
        let bench = bench.args("bench engine --device cuda:0 --batch-sizes 1 --random-weights").arg(shape);
        bench.exits(2).reports([architecture, "not supported on GPUs", "--device cpu"]);
    }
}

/// A card whose free memory holds one built-in model with its buffers, but not two.
const TOGETHER_TOO_SMALL: &str = "1020000000";

#[test]
fn a_lost_gpu_ends_the_run_which_is_resumed() {
    let folder = tempfile::tempdir().unwrap();
    let Some(whole) = run(folder.path(), "whole") else { return };
    whole.ok();
    let lost = run(folder.path(), "lost").unwrap().env("LUMOS_FAKE_FAIL", "400").run();
    // The run ends: the failure is not counted as one of the unit, and no further attempts are made.
    assert_eq!(lost.code, 1, "{lost}");
    assert!(!lost.stdout.contains("faulted") && !lost.stderr.contains("attempt"), "{lost}");
    let lost = lost.reports([
        "GPU cuda:0 stopped working",
        "(CUDA_ERROR_ILLEGAL_ADDRESS)",
        "hint: start the program again",
    ]);
    assert!(!lost.stderr.contains("panicked"), "{lost}");
    let lost = folder.path().join("lost");
    on_gpu().unwrap().args("resume").arg(&lost).ok();
    assert_eq!(replies(&lost), replies(&folder.path().join("whole")));
    let hung = run(folder.path(), "hung").unwrap();
    let hung = hung.env("LUMOS_FAKE_HANG", "400").env("LUMOS_GPU_TIMEOUT", "1").run();
    assert_ne!(hung.code, 0, "{hung}");
    hung.reports(["GPU cuda:0 stopped working", "did not end within 1 s"]);
}

/// A server whose GPU fails responds to requests in progress with an error, and ends.
#[test]
fn a_lost_gpu_ends_the_server() {
    let Some(command) = on_gpu() else { return };
    let command = command.env("LUMOS_FAKE_FAIL", "400");
    let server = Serving::models_of(command, "--device cuda:0", &["builtin:tiny"]);
    assert_eq!(status(&server, "tiny-grounder", 64), 503);
    let ended = server.process.ended().with_code(1);
    ended.reports(["error: GPU cuda:0 stopped working", "hint: start the program again"]);
}

/// The script for machines with a GPU runs without cargo and network, and fails without the reference cases.
#[test]
fn the_script_for_a_machine_with_a_gpu_runs() {
    let Some(libraries) = lumos_capabilities::fake_gpu() else { return };
    let folder = tempfile::tempdir().unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("benches/peers/gpu/run.sh");
    let (there, out) = (folder.path().join(".gpu"), folder.path().join("out"));
    std::fs::create_dir(&there).unwrap();
    std::fs::copy(script, there.join("run.sh")).unwrap();
    std::os::unix::fs::symlink(PathBuf::from(program()), there.join("lumos")).unwrap();
    let output = Command::new(there.join("run.sh"))
        .arg("load")
        .env("OUT", &out)
        .env("LUMOS_CUDA_LIBRARIES", &libraries)
        // The limits are those of a GPU.
        .env("LIMIT_FACTOR", "10")
        .env_remove("LUMOS_DEVICE")
        .output()
        .unwrap();
    let summary = std::fs::read_to_string(out.join("load.txt")).unwrap();
    assert_eq!(output.status.code(), Some(1), "{summary}");
    for line in
        ["ok      doctor", "ok      usable", "ok      small-f32", "ok      small-bf16", "ok      small-f16"]
    {
        assert!(summary.contains(line), "{line} is missing: {summary}");
    }
    assert!(summary.contains("FAILED  parity") && out.join("load-small-f16.json").is_file(), "{summary}");
}
