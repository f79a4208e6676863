//! Shopping in a browser end to end. Skipped if chromium or chromedriver is missing.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::shopping::script;
use crate::support::{Lumos, content, lumos, wait_until};

/// Number of goals.
const GOALS: usize = 2;

/// Returns the command of a run whose browsers use a separate folder.
fn command(folder: &Path, name: &str, more: impl AsRef<str>) -> Lumos {
    let model = format!("--model 'script:{}'", folder.join("cases.jsonl").display());
    let run = lumos().args("run --tasks webshop --tool rank=bm25").args(model).output(folder, name);
    run.args(more).env("TMPDIR", folder)
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

/// Number of screenshots that a run has kept.
fn pictures(folder: &Path) -> usize {
    let Ok(units) = fs::read_dir(folder.join("screenshots")) else { return 0 };
    let pictures = units.flat_map(|unit| fs::read_dir(unit.unwrap().path()).unwrap());
    pictures.filter(|picture| picture.as_ref().unwrap().path().extension().unwrap() == "png").count()
}

/// Whether a browser process of a folder exists.
fn is_left(folder: &Path) -> bool {
    let name = folder.to_str().unwrap().as_bytes();
    let holds = |bytes: Vec<u8>| bytes.windows(name.len()).any(|window| window == name);
    fs::read_dir("/proc").unwrap().flatten().any(|entry| {
        let read = |file: &str| fs::read(entry.path().join(file)).unwrap_or_default();
        read("comm").starts_with(b"chrom") && (holds(read("cmdline")) || holds(read("environ")))
    })
}

#[test]
fn goals_are_bought_in_a_browser_as_in_memory() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    script(None, GOALS, folder);
    command(folder, "memory", format!("--limit {GOALS}")).ok();
    assert_eq!(pictures(&folder.join("memory")), 0);

    // Killed halfway, then resumed to its end.
    let browser = format!("--browser chromedriver --screenshots --limit {GOALS}");
    let mut run = command(folder, "browser", browser).follow();
    let killed = folder.join("browser");
    wait_until(|| pictures(&killed) >= 6 || !run.is_running(), || "the run did not start".to_owned());
    assert!(run.kill(), "the run ended before it was killed");
    let resume = lumos().args("resume --screenshots").arg(&killed).env("TMPDIR", folder);
    resume.ok().prints(["shop=chromedriver"]);
    assert_eq!(samples(folder, "browser"), samples(folder, "memory"));
    assert!(pictures(&killed) > GOALS * 5);
    wait_until(|| !is_left(folder), || "browser processes are left".to_owned());
}

#[test]
fn what_is_missing_is_said_before_anything_runs() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    script(None, 1, folder);
    let without = command(folder, "without", "--browser chromedriver");
    let without = without.env("LUMOS_CHROMEDRIVER", "/no/chromedriver").exits(2);
    without.reports(["/no/chromedriver not found", "hint: install chromedriver"]);
    assert!(!folder.join("without").exists(), "no files are created");

    for (browser, said) in [
        ("firefox", "unknown browser `firefox`: expected `chromedriver`"),
        ("http://user:word@127.0.0.1:4444", "without user, password and query"),
        ("http://127.0.0.1:9", "the WebDriver server http://127.0.0.1:9/"),
    ] {
        let ended = command(folder, "other", "--browser").arg(browser).exits(2).reports([said]);
        assert!(!ended.stderr.contains("word@"), "{ended}");
    }

    // An explicit backend takes precedence over the browser.
    let named = "--browser http://127.0.0.1:9 --tool shop=memory --limit 1";
    command(folder, "named", named).ok().prints(["shop=memory"]);
}
