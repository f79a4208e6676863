//! Streams a generated Mind2Web file of many gigabytes and prints the peak memory. Usage: `stream_pages
//! [GIGABYTES]`; requires `mkfifo` and Linux's `/proc`.

use std::fs::OpenOptions;
use std::io::{BufWriter, Write};
use std::process::Command;
use std::time::Instant;

use lumos_benchmarks::{DataSource, find};
use serde_json::json;

/// Returns one task in the official format: four steps, each with a raw page and a cleaned one.
fn task(number: u64) -> String {
    let mut page = String::from("<html backend_node_id=\"0\">");
    for element in 1..2000 {
        page.push_str(&format!(
            "<a backend_node_id=\"{element}\" title=\"Entry {element} of task {number}\"/>"
        ));
    }
    page.push_str("</html>");
    let candidate =
        |id: u64| json!({"backend_node_id": id.to_string(), "tag": "a", "attributes": "{}", "rank": id});
    let action = |step: u64| {
        json!({
            "action_uid": format!("{number}-{step}"), "raw_html": "<!-- raw -->".repeat(60_000), "cleaned_html": page,
            "operation": {"op": "CLICK", "original_op": "CLICK", "value": ""},
            "pos_candidates": [candidate(1)], "neg_candidates": (2..500).map(candidate).collect::<Vec<_>>(),
        })
    };
    let task = json!({
        "annotation_id": number.to_string(), "website": "w", "domain": "d", "subdomain": "s", "confirmed_task": "Go on",
        "action_reprs": vec!["[a]  Entry -> CLICK"; 4], "actions": (0..4).map(action).collect::<Vec<_>>(),
    });
    task.to_string()
}

/// Peak memory of this process in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux's /proc");
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).expect("VmHWM not found");
    line.split_whitespace().nth(1).and_then(|kilobytes| kilobytes.parse::<u64>().ok()).expect("a number")
        / 1024
}

fn main() {
    let gigabytes: f64 = std::env::args().nth(1).map_or(5.0, |text| text.parse().expect("a number"));
    let folder = std::env::temp_dir().join(format!("stream_pages-{}", std::process::id()));
    std::fs::create_dir(&folder).expect("failed to create a folder");
    let pipe = folder.join("test_domain_0.json");
    assert!(Command::new("mkfifo").arg(&pipe).status().expect("failed to run mkfifo").success());
    let written = pipe.clone();
    let writer = std::thread::spawn(move || {
        let mut out = BufWriter::new(OpenOptions::new().write(true).open(written).expect("failed to open"));
        let template = task(0);
        let (mut bytes, mut number) = (1u64, 0u64);
        out.write_all(b"[").expect("failed to write");
        while (bytes as f64) < gigabytes * 1e9 {
            let task = template.replace("of task 0", &format!("of task {number}"));
            let comma: &[u8] = if number > 0 { b",\n" } else { b"" };
            out.write_all(comma).and_then(|()| out.write_all(task.as_bytes())).expect("failed to write");
            bytes += (comma.len() + task.len()) as u64;
            number += 1;
        }
        out.write_all(b"]").expect("failed to write");
        (bytes, number)
    });
    let started = Instant::now();
    let items = find("mind2web").expect("unknown").open(DataSource::File(pipe)).expect("failed to open");
    let (mut count, mut early) = (0u64, 0);
    for item in items {
        item.expect("failed to read a task");
        count += 1;
        if count == 50 {
            early = peak();
        }
    }
    let (bytes, number) = writer.join().expect("the writer panicked");
    std::fs::remove_dir_all(&folder).expect("failed to remove the folder");
    assert_eq!(count, number);
    println!(
        "{count} tasks, {:.2} GB in {:.0} s; peak {early} MiB after 50 tasks, {} MiB at the end",
        bytes as f64 / 1e9,
        started.elapsed().as_secs_f64(),
        peak()
    );
}
