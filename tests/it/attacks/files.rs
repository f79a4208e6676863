//! Untrusted files: model folders, scripts, manifests; and the permissions of files that a run writes.

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use serde_json::json;

use super::{MOST_MEMORY, is_full, line, peak_memory, watched};
use crate::support::model_server::Server;
use crate::support::{Serving, lumos, read_json, repository};

/// Copies a tiny model's folder.
fn model(folder: &Path) -> String {
    for entry in fs::read_dir(repository("engine/tests/data/adapters/base")).unwrap().flatten() {
        fs::copy(entry.path(), folder.join(entry.file_name())).unwrap();
    }
    format!("candle:{}", folder.display())
}

#[test]
fn v08_chat_templates_that_build_gigabytes() {
    let doubling = |step: &str| {
        format!(
            "{{% set ns = namespace(x='aaaaaaaa') %}}{{% for i in range(40) %}}{step}{{% endfor %}}{{{{ ns.x }}}}"
        )
    };
    let templates = [
        doubling("{% set ns.x = ns.x ~ ns.x %}"),
        doubling("{% set ns.x = ns.x | replace('a', 'aa') %}"),
        doubling("{% set ns.x = ns.x.replace('', ns.x) %}"),
        doubling("{% set ns.x %}{{ ns.x }}{{ ns.x }}{% endset %}"),
        "{{ 'a\nb' | indent(4000000000) }}".to_owned(),
        "{{ '%4000000000d' | format(1) }}".to_owned(),
        "{% macro m(s, n) %}{% if n %}{{ m(s ~ s, n - 1) }}{% endif %}{% endmacro %}{{ m('aaaa', 40) }}"
            .to_owned(),
    ];
    let folders: Vec<_> = templates
        .iter()
        .enumerate()
        .map(|(number, template)| {
            let folder = tempfile::tempdir().unwrap();
            let name = format!("bomb{number}={}", model(folder.path()));
            let settings = json!({ "chat_template": template });
            fs::write(folder.path().join("tokenizer_config.json"), settings.to_string()).unwrap();
            (folder, name)
        })
        .collect();
    let names: Vec<&str> = folders.iter().map(|(_, name)| name.as_str()).collect();
    let server = Serving::models(&names);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    for number in 0..templates.len() {
        let body = json!({
            "model": format!("bomb{number}"), "max_tokens": 1, "messages": [{"role": "user", "content": "How many?"}],
        });
        let answer = runtime.block_on(async {
            let sent = reqwest::Client::new().post(format!("{}/chat/completions", server.url)).json(&body);
            let answer = sent.send().await.unwrap();
            (answer.status().as_u16(), answer.text().await.unwrap())
        });
        assert!(matches!(answer.0, 400 | 500), "{number}: {answer:?}");
    }
    let peak = peak_memory(server.process.id()).expect("the server ended");
    assert!(peak < MOST_MEMORY, "{peak} MiB");
    line(
        "V8",
        &format!("{} chat templates that build gigabytes", templates.len()),
        &format!("refused; {peak} MiB with {} models", templates.len()),
    );
}

/// Writes a gzip file that expands a thousandfold: blank lines or a single line, as a member of 100 MiB,
/// repeated.
fn bomb(path: &Path, members: usize, line: &[u8]) -> (u64, u64) {
    let mut packer = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
    for _ in 0..100 {
        packer.write_all(line).unwrap();
    }
    let member = packer.finish().unwrap();
    let mut file = fs::File::create(path).unwrap();
    for _ in 0..members {
        file.write_all(&member).unwrap();
    }
    (fs::metadata(path).unwrap().len(), members as u64 * 100 * line.len() as u64)
}

#[test]
fn v09_compressed_files_that_expand_without_bound() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("cases.jsonl.gz");
    let model = format!("script:{}", path.display());
    let mut blank = vec![b' '; 1 << 20];
    let one_line = blank.clone();
    *blank.last_mut().unwrap() = b'\n';
    // The reader stops at 256 MiB and at 32 times the file's size, so the long form differs in the size of
    // the file only.
    let members = if is_full() { 90 } else { 10 };
    for (bytes, kind, reason) in
        [(&blank, "blank lines", "expand to more than"), (&one_line, "one line", "longer than")]
    {
        let (packed, whole) = bomb(&path, members, bytes);
        let runs = folder.path().join("runs");
        let run = lumos().args("run --tasks gsm8k --formulation cot --model").arg(&model);
        let (ended, peak) = watched(2, run.args("--output-path").arg(&runs));
        ended.reports(["cases.jsonl.gz", reason]);
        assert!(!runs.exists());
        line(
            "V9",
            &format!(
                "`script:` file of {:.1} MB that expands to {:.1} GB, {kind}",
                packed as f64 / 1e6,
                whole as f64 / 1e9
            ),
            &format!("exit 2, the file and the limit are named; {peak} MiB"),
        );
    }
}

/// The tokenizers crate panics on these files.
#[test]
fn v10_damaged_tokenizers() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path());
    let path = folder.path().join("tokenizer.json");
    let whole = read_json(&path);
    let complete = || lumos().args("complete a --max-new-tokens 1 --model").arg(&model);
    complete().ok();
    for (field, value) in [("decoder", json!(5)), ("normalizer", json!("NFC"))] {
        let mut damaged = whole.clone();
        damaged[field] = value;
        fs::write(&path, damaged.to_string()).unwrap();
        let ended = complete().exits(2).reports(["tokenizer.json"]);
        assert!(!ended.stderr.contains("panicked"), "{ended}");
    }
    line(
        "V10",
        "2 tokenizer.json files that the tokenizers crate panics on",
        "exit 2, the file is named, no panic",
    );
}

#[test]
fn v14_who_may_read_what_a_run_writes() {
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, _| Ok("CORRECT".to_owned()));
    let model = format!("openai:m@{}", server.url);
    let run = lumos().args("run --tasks hotpotqa --formulation direct --limit 1 --model").arg(&model);
    run.output(folder.path(), "mine").ok();
    let mine = folder.path().join("mine");
    lumos().args("score --judge").arg(&model).arg(&mine).ok();
    let mode = |name: &str| fs::metadata(mine.join(name)).unwrap().permissions().mode() & 0o777;
    for name in ["checkpoint", "judge"] {
        assert_eq!(mode(name), 0o700, "{name}");
    }
    line(
        "V14",
        "modes of a run's folder",
        &format!(
            "checkpoint {:o}, judge {:o}; the folder itself {:o} by the umask",
            mode("checkpoint"),
            mode("judge"),
            mode("")
        ),
    );
}

#[test]
fn v14_manifests_that_are_not_text() {
    let folder = tempfile::tempdir().unwrap();
    for bytes in [&b"\xff\xfe{}"[..], b"{\"schema\": \"\xc3\x28\"}", b"", b"\x00"] {
        fs::write(folder.path().join("manifest.json"), bytes).unwrap();
        for (command, more) in [("report", ""), ("resume", ""), ("verify", ""), ("show", "1")] {
            let command = lumos().args(command).arg(folder.path()).args(more);
            watched(2, command).0.reports(["manifest.json"]);
        }
    }
    line(
        "–",
        "4 manifests that are not text, read by `report`, `resume`, `verify`, `show`",
        "exit 2, the file is named",
    );
}
