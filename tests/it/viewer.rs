//! The item viewer in Chromium, opened from disk as a user does. Skipped if chromium or chromedriver is missing.

use std::fs;

use serde_json::Value;

use crate::support::browser::Browser;
use crate::support::model_server::Server;
use crate::support::{UNITS, block_on, finished_run, lumos};

/// Text that a model could use against the page.
const HOSTILE: &str = "</script><script>window.hit=1</script><img src=x onerror=window.hit=1>\u{202e}gnp";

const STATUS: &str = "#items [role=status]";

/// Number in `12 of 60 items`.
async fn listed(browser: &Browser) -> u64 {
    browser.text(STATUS).await.split(' ').next().unwrap().parse().unwrap()
}

#[test]
fn items_are_found_sorted_opened_and_compared() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let page = finished_run(folder.path()).join("report/index.html");
    block_on(async {
        let browser = Browser::start(folder.path()).await;
        browser.open(&page, "").await;
        assert_eq!(listed(&browser).await, UNITS);
        assert!(browser.value("document.querySelectorAll('*').length").await.as_u64().unwrap() < 3000);

        // A number in the table of causes lists its items, and the address repeats the filter.
        let link = browser.find("#causes ~ .failures a[data-filter]").await;
        let count: u64 = link.text().await.unwrap().parse().unwrap();
        link.click().await.unwrap();
        assert!(count < UNITS);
        assert_eq!(listed(&browser).await, count);
        browser.wait("location.hash.includes('cause=')").await;
        browser.client.refresh().await.unwrap();
        browser.wait("document.documentElement.dataset.ready === 'true'").await;
        assert_eq!(listed(&browser).await, count, "the address restores the filter");
        browser.find("#items .bar button").await.click().await.unwrap();
        assert_eq!(listed(&browser).await, UNITS);

        // Search, and sorting by a column.
        browser.find("#filter-q").await.send_keys("correct").await.unwrap();
        let correct = listed(&browser).await;
        assert!(correct > 0 && correct < UNITS, "{correct}");
        browser.find("#filter-q").await.clear().await.unwrap();
        browser.find("th.c-tokens button").await.click().await.unwrap();
        assert_eq!(browser.value("document.querySelector('th.c-tokens').ariaSort").await, "descending");
        let tokens = "[...document.querySelectorAll('td.c-tokens')].map((cell) => Number(cell.textContent.replace(',', '')))";
        let tokens: Vec<u64> = serde_json::from_value(browser.value(tokens).await).unwrap();
        assert!(tokens.len() > 10 && tokens.is_sorted_by(|left, right| left >= right), "{tokens:?}");

        // By keys alone: the list, a row, its trajectory, the next failure, and back.
        browser.find(".scroller").await.send_keys("jj").await.unwrap();
        let row = browser.value("document.activeElement.closest('tr').ariaRowIndex").await;
        assert_eq!(row, "3", "the second row");
        browser.press("\u{e007}").await;
        browser.wait("document.querySelector('.panel pre') !== null").await;
        assert_eq!(browser.value("document.activeElement.tagName").await, "H3");
        let panel = browser.text(".panel").await;
        for text in ["Turn 1", "planner", "Prompt, ", "Ending", "exact_match"] {
            assert!(panel.contains(text), "{text}: {panel}");
        }
        let first = browser.text(".panel h3").await;
        browser.press("n").await;
        let next = browser.text(".panel h3").await;
        assert!(next != first && !next.ends_with(": correct"), "{first}, {next}");
        browser.press("\u{e00c}").await;
        assert_eq!(browser.value("document.querySelector('.panel').hidden").await, true);
        let frame = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))";
        browser.value(frame).await;
        assert_eq!(
            browser.value("document.activeElement.closest('tr') !== null").await,
            true,
            "after a resize"
        );

        // From the top of the page, a key shows the item.
        browser.value("document.activeElement.blur(), scrollTo(0, 0)").await;
        browser.press("n").await;
        let visible = "document.querySelector('.panel h3').getBoundingClientRect().top";
        let top = browser.value(visible).await.as_f64().unwrap();
        assert!((0.0..browser.value("innerHeight").await.as_f64().unwrap()).contains(&top), "{top}");
        browser.press("\u{e00c}").await;

        // The same item in two configurations.
        browser.open(&page, "#cell=0&with=1&change=neither").await;
        let both = listed(&browser).await;
        assert!(both > 0 && both <= UNITS / 2, "{both}");
        browser.press("n").await;
        browser.wait("document.querySelectorAll('.panel .sides.two pre').length > 1").await;
        let panel = browser.text(".panel").await;
        assert!(panel.contains("svamp iterative") && panel.contains("svamp onetime"), "{panel}");

        // On a phone, nothing is wider than the page.
        browser.resize(390, 844).await;
        browser.wait("innerWidth === 390").await;
        assert!(browser.value("document.documentElement.scrollWidth").await.as_u64().unwrap() <= 390);
        assert_eq!(browser.console().await, Value::Array(Vec::new()), "errors and blocked resources");
        browser.close().await;
    });
}

#[test]
fn texts_of_a_model_stay_texts() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(|_, body| {
        let grounds = body["prompt"].as_str().unwrap().contains("Subgoal to be grounded");
        Ok(if grounds { format!("R1 = Calculator({HOSTILE})") } else { format!("Subgoal 1: {HOSTILE}") })
    });
    let run =
        server.lumos().args("run --tasks svamp --limit 2").args(format!("--model openai:x@{}", server.url));
    run.output(folder.path(), "hostile").ok();
    let viewer = folder.path().join("viewer");
    lumos()
        .args("report --format viewer --output")
        .arg(&viewer)
        .arg(folder.path().join("hostile"))
        .ok()
        .prints(["viewer/index.html"]);
    block_on(async {
        let browser = Browser::start(folder.path()).await;
        for page in [viewer.join("index.html"), folder.path().join("hostile/report.html")] {
            browser.open(&page, "").await;
            browser.press("n").await;
            browser.wait("!document.querySelector('.panel').textContent.includes('Loading')").await;
            assert_eq!(
                browser.value("window.hit === undefined && !document.querySelector('img')").await,
                true
            );
        }
        browser.open(&viewer.join("index.html"), "").await;
        browser.press("n").await;
        browser.wait("document.querySelector('.panel pre') !== null").await;
        let shown = HOSTILE.replace('\u{202e}', "\u{fffd}");
        assert!(browser.text(".panel").await.contains(&shown), "{}", browser.text(".panel").await);
        assert_eq!(browser.value("window.hit === undefined").await, true);
        assert_eq!(browser.console().await, Value::Array(Vec::new()), "errors and blocked resources");
        browser.close().await;
    });
}

#[test]
fn a_viewer_is_written_to_a_new_folder_only() {
    let folder = tempfile::tempdir().unwrap();
    let run = finished_run(folder.path());
    let report = || lumos().args("report --format viewer").arg(&run);
    report().exits(2).reports(["--format viewer needs a folder", "hint: add --output"]);
    report().args("--output").arg(&run).exits(2).reports(["not an empty folder"]);
    assert!(run.join("manifest.json").is_file());
    let viewer = folder.path().join("viewer");
    for _ in 0..2 {
        report().args("--output").arg(&viewer).ok();
    }
    let written = |folder: &std::path::Path| fs::read(folder.join("index.html")).unwrap();
    assert_eq!(written(&viewer), written(&run.join("report")), "equal records have equal pages");
    lumos().args("report --json").arg(&run).ok().json();
    lumos().args("report --format xml").arg(&run).exits(2).reports(["html, viewer"]);
}
