//! Leases of browsers, and cleanup after processes that ended.

use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use crate::browser::webdriver::tests::support::{Site, TestPool, gone, processes, settings};
use crate::browser::webdriver::{BrowserError, BrowserPool};

#[tokio::test(flavor = "multi_thread")]
async fn a_killed_browser_and_a_killed_driver_are_faults_and_are_replaced() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let site = Site::start().await;
    let pool = TestPool::new(1);
    for victim in ["--user-data-dir", "chromedriver --port=0"] {
        let mut lease = pool.session().await.unwrap();
        lease.goto(&site.page("/")).await.unwrap();
        let all = processes(pool.folder.path());
        let main =
            |line: &str| line.contains(victim) && !line.contains("--type=") && !line.contains("crashpad");
        all.iter().find(|process| main(&process.line)).unwrap().kill();
        tokio::time::sleep(Duration::from_millis(100)).await;
        let outcome = lease.goto(&site.page("/")).await;
        assert!(matches!(outcome, Err(BrowserError::Fault(_))), "{victim} {outcome:?}");
        drop(lease);
        let mut lease = pool.session().await.unwrap();
        lease.goto(&site.page("/")).await.unwrap();
        drop(lease);
        // A browser that dies while it is not leased is replaced before the next lease.
        let all = processes(pool.folder.path());
        all.iter().find(|process| main(&process.line)).unwrap().kill();
        let mut lease = pool.session().await.unwrap();
        lease.goto(&site.page("/")).await.unwrap();
    }
    assert!(pool.left().is_empty());
}

/// 35 bytes is the longest path that [`BrowserSettings::new`] uses on Linux; for longer ones it uses `/tmp`.
///
/// [`BrowserSettings::new`]: crate::browser::BrowserSettings::new
#[cfg(target_os = "linux")]
#[tokio::test(flavor = "multi_thread")]
async fn a_browser_starts_in_the_longest_folder() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let site = Site::start().await;
    let short = tempfile::tempdir_in("/tmp").unwrap();
    let longest = short.path().join("x".repeat(35 - short.path().as_os_str().len() - 1));
    let pool = TestPool::with(1, |settings| settings.folder = longest);
    pool.session().await.unwrap().goto(&site.page("/")).await.unwrap();
    assert!(pool.left().is_empty());
    assert!(gone(short.path()).is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn ten_who_ask_for_two_wait_in_order() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let site = Arc::new(Site::start().await);
    let pool = TestPool::with(2, |settings| settings.leases = 6);
    let (at_once, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let served = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut all = JoinSet::new();
    for number in 0..10 {
        let (pool, site, served) = (pool.pool.clone(), Arc::clone(&site), Arc::clone(&served));
        let (at_once, most) = (Arc::clone(&at_once), Arc::clone(&most));
        all.spawn(async move {
            let mut lease = pool.session().await.unwrap();
            served.lock().unwrap().push(number);
            most.fetch_max(at_once.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            lease.goto(&site.page("/kept")).await.unwrap();
            let kept = lease.read_visible_texts(None).await.unwrap();
            assert_eq!(kept, ["kept:"], "no data of another lease");
            lease.goto(&site.page("/keep")).await.unwrap();
            at_once.fetch_sub(1, Ordering::SeqCst);
        });
        // Ensures the order of the requests.
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    all.join_all().await;
    assert_eq!(most.load(Ordering::SeqCst), 2);
    let served = served.lock().unwrap().clone();
    // The two requests that are served at the same time may overtake each other.
    assert!(served.iter().enumerate().all(|(place, number)| place.abs_diff(*number) <= 2), "{served:?}");
    // A lease that is dropped during a command is not reused.
    let mut lease = pool.session().await.unwrap();
    let waited = tokio::time::timeout(Duration::from_millis(300), lease.goto(&site.page("/never"))).await;
    assert!(waited.is_err());
    drop(lease);
    let mut lease = pool.session().await.unwrap();
    lease.goto(&site.page("/")).await.unwrap();
    drop(lease);
    assert!(pool.left().is_empty());
}

/// Folder for the browsers of the next test's child process.
const FOLDER: &str = "LUMOS_TEST_BROWSERS";

/// The worker process that is killed. Does nothing if it is run as a test.
#[tokio::test(flavor = "multi_thread")]
async fn child_with_browsers() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let pool = BrowserPool::new(settings(folder.as_ref(), 2)).unwrap();
    let _leases = [pool.session().await.unwrap(), pool.session().await.unwrap()];
    println!("\nbrowsers are up");
    tokio::time::sleep(Duration::from_secs(600)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_killed_worker_leaves_behind_is_ended_by_the_next() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "browser::webdriver::tests::lifetime::child_with_browsers", "--nocapture"])
        .env(FOLDER, folder.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("browsers are up")), "the child has no browsers");
    // Other pools do not touch its browsers while it runs.
    let others = BrowserPool::new(settings(folder.path(), 1)).unwrap();
    let before = processes(folder.path()).len();
    // Two drivers and two browsers, which have more processes of their own.
    assert!(before >= 4, "{before}");
    child.kill().unwrap();
    child.wait().unwrap();
    tokio::time::sleep(Duration::from_millis(200)).await;
    let left = processes(folder.path()).len();
    println!("{left} of {before} processes outlive the worker");
    let next = BrowserPool::new(settings(folder.path(), 1)).unwrap();
    assert!(gone(folder.path()).is_empty());
    drop((others, next));
    let kept: Vec<_> =
        std::fs::read_dir(folder.path()).unwrap().flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(kept, ["gate"]);
}
