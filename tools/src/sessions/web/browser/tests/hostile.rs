//! Hostile pages, and browsers that are killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use lumos_tasks::families::web::ActionName::{Click, Type};
use lumos_tasks::families::web::{Obstacle, PageExecution, WebResult};

use super::stage::{DONE, Stage, step};
use crate::browser::webdriver::tests::support::{Site, TestPool, processes};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_page_runs_and_nothing_leaves() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let site = Site::start().await;
    let counted = site.page("/counted");
    let page = format!(
        "<html><head><meta http-equiv='refresh' content='0;url={counted}'/><base href='{counted}'/>\
         <link rel='stylesheet' href='{counted}'/><style>@import url({counted});</style></head>\
         <body onload='while(true);' style='background:url({counted})'>\
         <script>while (true) {{}}</script><script src='{counted}'/><svg><script>while (true) {{}}</script></svg>\
         <img src='{counted}' srcset='{counted}' onerror='while(true);'/><img src='file:///etc/passwd'/>\
         <iframe src='file:///etc/passwd' srcdoc='&lt;script&gt;while(true);&lt;/script&gt;'/>\
         <object data='{counted}'/><embed src='{counted}'/><video src='{counted}' poster='{counted}'/>\
         <a backend_node_id='1' href='{counted}' ping='{counted}' target='_blank' onclick='while(true);'>Leave</a>\
         <a backend_node_id='2' href='file:///etc/passwd'>Read</a><a backend_node_id='3' href='javascript:while(true);'>Run</a>\
         <form action='{counted}' name='querySelectorAll'><input name='contains'/><button backend_node_id='4' \
         formaction='{counted}'>Send</button></form><input backend_node_id='5' onfocus='while(true);' autofocus=''/>\
         <form id='body' name='body' backend_node_id='6'><input id='getClientRects' name='matches'/></form></body></html>"
    );
    let stage = Stage::new(vec![step(&page, &["1"])]).await;
    for element in ["1", "2", "3", "4", "5", "6"] {
        assert_eq!(stage.carry(0, Click, element, None).await.unwrap(), DONE, "{element}");
    }
    let script = "</script><script>while(true);</script>');while(true);//`${1}";
    assert_eq!(stage.carry(0, Type, "5", Some(script)).await.unwrap(), DONE);
    assert_eq!(site.requests.load(Ordering::SeqCst), 0);
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_beyond_measure_are_refused_and_those_within_are_shown() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let around = |inner: &str| format!("<html><body><b backend_node_id='1'>x</b>{inner}</body></html>");
    let nested = |levels: usize| around(&("<div>".repeat(levels) + &"</div>".repeat(levels)));
    let refused = |obstacle| {
        let refused = WebResult::Refused(obstacle);
        PageExecution { action: refused, truth: Some(refused) }
    };
    let pages = [
        (around(&"<br/>".repeat(20 << 20)), refused(Obstacle::PageTooLarge)),
        (around(&"<br/>".repeat(200_000)), refused(Obstacle::PageTooLarge)),
        (nested(100_000), refused(Obstacle::PageUnreadable)),
        ("\u{0}\u{feff}<p>\u{fffd}<!--</p>".to_owned(), refused(Obstacle::PageUnreadable)),
        (nested(250), DONE),
        (around(&"<div>\u{fffd}\u{202e}\u{85}é</div>".repeat(90_000)), DONE),
        (around(&"word ".repeat(1_500_000)), DONE),
        (around("<a:b c='d'/><x-y/><constructor/><plaintext/><dialog>Open</dialog>"), DONE),
    ];
    let steps = pages.iter().map(|(page, _)| step(page, &["1"])).collect();
    let stage = Stage::with(TestPool::new(1), steps, None).await;
    for (index, (_, expected)) in (0..).zip(&pages) {
        let carried = stage.carry(index, Click, "1", None).await;
        assert_eq!(carried.as_ref(), Ok(expected), "page {index}");
    }
    stage.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_browser_is_a_fault_and_the_next_one_works() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let stage = Stage::new(vec![step("<a backend_node_id='1'>x</a>", &["1"])]).await;
    let stop = Arc::new(AtomicBool::new(false));
    let folder = stage.pool.folder.path().to_owned();
    let killer = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            while !stop.load(Ordering::SeqCst) {
                for process in processes(&folder) {
                    if process.line.contains("--user-data-dir") {
                        process.kill();
                    }
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        }
    });
    let fault = stage.carry(0, Click, "1", None).await.unwrap_err();
    stop.store(true, Ordering::SeqCst);
    killer.join().unwrap();
    assert_eq!(fault.tool, "browser");
    assert_eq!(stage.carry(0, Click, "1", None).await.unwrap(), DONE);
    stage.end();
}
