//! Shopping in a browser end to end. Skipped if chromium or chromedriver is missing.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::shopping::script;
use crate::support::{content, lumos, text};

/// Number of goals.
const GOALS: &str = "3";

/// Returns the command of a run whose browsers use a separate folder.
fn command(folder: &Path, name: &str, more: &[&str]) -> Command {
    let model = format!("script:{}", folder.join("cases.jsonl").display());
    let mut command = lumos();
    command
        .args(["run", "--tasks", "webshop", "--model", &model, "--tool", "rank=bm25"])
        .args(["--output-path", folder.to_str().unwrap(), "--name", name])
        .args(more)
        .env("TMPDIR", folder);
    command
}

/// Returns the samples of a run without the fields that identify its configuration.
fn samples(folder: &Path, name: &str) -> Vec<Value> {
    let mut rows = content(&folder.join(name)).0.remove("webshop").unwrap();
    for row in &mut rows {
        for field in ["unit", "configuration"] {
            row.as_object_mut().unwrap().remove(field);
        }
    }
    rows
}

fn succeed(command: &mut Command) -> String {
    let (code, stdout, stderr) = text(&command.output().unwrap());
    assert_eq!(code, 0, "{stdout}\n{stderr}");
    stdout
}

/// Number of screenshots that a run has kept.
fn pictures(folder: &Path) -> usize {
    let Ok(units) = fs::read_dir(folder.join("screenshots")) else { return 0 };
    let pictures = units.flat_map(|unit| fs::read_dir(unit.unwrap().path()).unwrap());
    pictures.filter(|picture| picture.as_ref().unwrap().path().extension().unwrap() == "png").count()
}

/// Whether a browser process of a folder still exists after a while.
fn is_left(folder: &Path) -> bool {
    let name = folder.to_str().unwrap().as_bytes();
    let until = Instant::now() + Duration::from_secs(120);
    loop {
        let holds = |bytes: Vec<u8>| bytes.windows(name.len()).any(|window| window == name);
        let left = fs::read_dir("/proc").unwrap().flatten().any(|entry| {
            let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
            read("comm").starts_with(b"chrom") && (holds(read("cmdline")) || holds(read("environ")))
        });
        if !left || Instant::now() > until {
            return left;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

#[test]
fn goals_are_bought_in_a_browser_as_in_memory() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    script(None, GOALS.parse().unwrap(), &folder.join("cases.jsonl"));
    succeed(&mut command(folder, "memory", &["--limit", GOALS]));
    let browser = ["--browser", "chromedriver", "--screenshots", "--limit", GOALS];
    let stdout = succeed(&mut command(folder, "browser", &browser));
    assert!(stdout.contains("shop=chromedriver"), "{stdout}");
    assert_eq!(samples(folder, "browser"), samples(folder, "memory"));
    assert!(pictures(&folder.join("browser")) > 3 * 5);
    assert_eq!(pictures(&folder.join("memory")), 0);

    // Killed halfway, then resumed to its end.
    let mut child =
        command(folder, "killed", &browser).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let began = Instant::now();
    while pictures(&folder.join("killed")) < 6 {
        assert!(began.elapsed() < Duration::from_secs(300), "the run did not start");
        assert!(child.try_wait().unwrap().is_none(), "the run ended before it was killed");
        std::thread::sleep(Duration::from_millis(10));
    }
    child.kill().unwrap();
    assert_eq!(child.wait().unwrap().code(), None, "the run ended before it was killed");
    let killed = folder.join("killed");
    succeed(lumos().args(["resume", killed.to_str().unwrap(), "--screenshots"]).env("TMPDIR", folder));
    assert_eq!(samples(folder, "killed"), samples(folder, "memory"));
    assert!(!is_left(folder), "browser processes are left");
}

#[test]
fn what_is_missing_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    script(None, 1, &folder.join("cases.jsonl"));
    let mut without = command(folder, "without", &["--browser", "chromedriver"]);
    let (code, _, stderr) = text(&without.env("LUMOS_CHROMEDRIVER", "/no/chromedriver").output().unwrap());
    assert_eq!(code, 2, "{stderr}");
    assert!(stderr.contains("/no/chromedriver not found; hint: install chromedriver"), "{stderr}");
    assert!(!folder.join("without").exists(), "no files are created");

    for (browser, said) in [
        ("firefox", "unknown browser `firefox`: expected `chromedriver`"),
        ("http://user:word@127.0.0.1:4444", "without user, password and query"),
        ("http://127.0.0.1:9", "the WebDriver server http://127.0.0.1:9/"),
    ] {
        let (code, stdout, stderr) =
            text(&command(folder, "other", &["--browser", browser]).output().unwrap());
        assert_eq!(code, 2, "{stdout}{stderr}");
        assert!(stderr.contains(said) && !stderr.contains("word@"), "{stderr}");
    }

    // An explicit backend takes precedence over the browser.
    let named = ["--browser", "http://127.0.0.1:9", "--tool", "shop=memory", "--limit", "1"];
    let stdout = succeed(&mut command(folder, "named", &named));
    assert!(stdout.contains("shop=memory"), "{stdout}");
}
