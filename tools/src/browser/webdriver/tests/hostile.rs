//! Hostile pages.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::Duration;

use serde_json::json;

use crate::browser::webdriver::tests::support::{Site, TestPool, started};
use crate::browser::webdriver::{BrowserError, BrowserLease, BrowserRefusal};

#[tokio::test(flavor = "multi_thread")]
async fn boxes_are_dismissed() {
    let Some((site, _pool, mut lease)) = started().await else { return };
    lease.goto(&site.page("/alert")).await.unwrap();
    assert_eq!(lease.read_visible_texts(None).await.unwrap()[0], "after");
    let ask = lease.find_by_role_and_text("button", "Ask").await.unwrap();
    lease.click(&ask).await.unwrap();
    assert_eq!(lease.read_visible_texts(Some("p")).await.unwrap(), ["after"]);
    lease.goto(&site.page("/stay")).await.unwrap();
    let field = lease.find_by_css("input").await;
    lease.type_text(&field, "so that leaving is asked about").await.unwrap();
    lease.goto(&site.page("/")).await.unwrap();
    assert!(lease.find_by_role_and_text("button", "Search").await.is_ok());
    let left = lease.goto(&site.page("/leave")).await;
    assert!(left.is_err() || lease.read_visible_texts(None).await.is_err(), "{left:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn values_that_look_like_elements_are_not_sent_back() {
    let Some((site, _pool, mut lease)) = started().await else { return };
    lease.goto(&site.page("/")).await.unwrap();
    assert!(lease.find("return document.body;", Vec::new()).await.unwrap().is_ok());
    // chromedriver itself rejects some.
    let forged = "return { 'element-6066-11e4-a52e-4f735466cecf': '../../url' };";
    assert!(!matches!(lease.find(forged, Vec::new()).await, Ok(Ok(_))));
}

/// Returns the files of `/downloads` in and below a folder.
fn downloads(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let found = entries.flat_map(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() && entry.file_name() != "target" => downloads(&entry.path()),
        _ => vec![entry.path()],
    });
    let is_download = |name: &str| name.starts_with("lumos-blob") || name.starts_with("lumos-file");
    found.filter(|path| path.file_name().is_some_and(|name| is_download(&name.to_string_lossy()))).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_downloaded() {
    let Some((site, pool, mut lease)) = started().await else { return };
    lease.goto(&site.page("/downloads")).await.unwrap();
    tokio::time::sleep(Duration::from_millis(500)).await;
    let places = [pool.folder.path().to_owned(), std::env::current_dir().unwrap()];
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("Downloads"));
    for place in places.into_iter().chain(home) {
        let found = downloads(&place);
        assert!(found.is_empty(), "{found:?}");
    }
    drop(lease);
    assert!(pool.left().is_empty());
}

/// Shows a page that ends. On a busy machine, that may take longer than the pool's time limits, so it is tried again.
async fn shown(pool: &TestPool, address: &str) -> BrowserLease {
    for _ in 0..20 {
        let mut lease = pool.session().await.unwrap();
        match lease.goto(address).await {
            Ok(()) => return lease,
            Err(error) => eprintln!("{address}: {error:?}"),
        }
    }
    panic!("{address} was not shown in 20 attempts");
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_that_do_not_end_are_faults_and_the_next_session_works() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let site = Site::start().await;
    let pool = TestPool::with(1, |settings| {
        settings.page_limit = Duration::from_secs(3);
        settings.command_limit = Duration::from_secs(5);
    });
    for page in ["/endless", "/never", "/endless-later"] {
        let (mut lease, outcome);
        if page == "/endless-later" {
            lease = shown(&pool, &site.page(page)).await;
            let button = lease.find_by_role_and_text("button", "Begin").await.unwrap();
            let clicked = lease.click(&button).await;
            tokio::time::sleep(Duration::from_millis(200)).await;
            outcome = clicked.and(lease.read_visible_texts(None).await.map(drop));
        } else {
            lease = pool.session().await.unwrap();
            outcome = lease.goto(&site.page(page)).await;
        }
        assert!(matches!(outcome, Err(BrowserError::Fault(_))), "{page} {outcome:?}");
        // The session cannot be used any more.
        assert!(matches!(lease.goto(&site.page("/")).await, Err(BrowserError::Fault(_))));
        drop(lease);
        shown(&pool, &site.page("/")).await;
    }
    assert!(pool.left().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn built_pages_run_nothing_and_ask_nobody() {
    let Some((site, _pool, mut lease)) = started().await else { return };
    let counted = site.page("/counted");
    let html = format!(
        "<html backend_node_id=1><head><title>Given</title><script>document.title = 'run'</script>\
         <script src='{counted}'></script><link rel=stylesheet href='{counted}'><style>p {{ background: url({counted}) }}</style>\
         <body backend_node_id=2 onload=\"document.title = 'run'\"><p backend_node_id=3>Read <b>me</b></p><img src='{counted}' \
         onerror=\"document.title = 'run'\"><iframe src='{counted}'></iframe><iframe srcdoc=\"<script>parent.document.title = \
         'run'</script>\"></iframe><a backend_node_id=4 href=\"javascript:document.title = 'run'\">Run</a>\
         <form action='{counted}'><button backend_node_id=5 onclick=\"document.title = 'run'\">Send</button></form>\
         <select backend_node_id=6><option>One<option>Two</select><object data='{counted}'></object>"
    );
    lease.build_from(&html).await.unwrap();
    assert_eq!(lease.read_visible_texts(Some("p")).await.unwrap(), ["Read me"]);
    let title = "return document.title;";
    for id in [4, 5] {
        let element = lease.find_by_css(&format!("[backend_node_id='{id}']")).await;
        lease.click(&element).await.unwrap();
        assert_eq!(lease.execute(title, Vec::new()).await.unwrap(), json!("Given"), "{id}");
    }
    let list = lease.find_by_css("[backend_node_id='6']").await;
    lease.select(&list, "two").await.unwrap();
    let index = "return arguments[0].selectedIndex;";
    assert_eq!(lease.execute(index, vec![list.argument()]).await.unwrap(), json!(1));
    // Scripts of the caller are executed.
    let listen = "addEventListener('click', (event) => { event.preventDefault(); window.clicked = \
                  event.target.getAttribute('backend_node_id'); }, true);";
    lease.execute(listen, Vec::new()).await.unwrap();
    let link = lease.find_by_role_and_text("link", "Run").await.unwrap();
    lease.click(&link).await.unwrap();
    assert_eq!(lease.execute("return window.clicked;", Vec::new()).await.unwrap(), json!("4"));
    assert_eq!(site.requests.load(Ordering::SeqCst), 0);

    // A page that navigates away is rejected, regardless of when this is detected.
    let leaving = format!("<meta http-equiv=refresh content='0;url={counted}'>gone");
    let mut outcome = lease.build_from(&leaving).await;
    // On a busy machine, it may be some time until the page navigates.
    for _ in 0..600 {
        if outcome.is_err() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
        outcome = lease.read_visible_texts(None).await.map(drop);
    }
    assert!(matches!(outcome, Err(BrowserError::Refused(BrowserRefusal::NotAllowed(_)))), "{outcome:?}");
    assert_eq!(site.requests.load(Ordering::SeqCst), 0);

    // Large, deep and malformed pages are displayed.
    lease.build_from(&"<div>".repeat(100_000)).await.unwrap();
    lease.build_from("\u{0}\u{feff}<p>\u{fffd}<!--</p>").await.unwrap();
    lease.build_from(&format!("<p>{}</p>", "word ".repeat(400_000))).await.unwrap();
    assert!(lease.read_visible_texts(None).await.unwrap()[0].len() <= 1 << 20);
    // Other pages have network access again.
    lease.goto(&counted).await.unwrap();
    assert_eq!(site.requests.load(Ordering::SeqCst), 1);
}
