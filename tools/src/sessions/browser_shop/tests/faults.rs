//! Browsers that are killed, browsers on another server, and screenshots of the steps.

use std::path::PathBuf;
use std::time::Instant;

use lumos_tasks::ToolReply;

use super::support::{Shops, ask, unit};
use crate::browser::BrowserName;
use crate::browser::webdriver::tests::support::{Server, TestPool, processes};

#[tokio::test(flavor = "multi_thread")]
async fn a_browser_that_dies_is_a_fault_and_the_next_one_goes_on() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let shops = Shops::open(None, TestPool::new(1), None);
    let goal = &shops.goals[0];
    let mut faults = 0;
    // At the beginning of a call, a dead browser is replaced without a fault. The kills come in the course of a call,
    // however long calls take on this machine.
    for share in [0.7, 0.5, 0.9, 0.3, 1.6].into_iter().cycle().take(40) {
        let session = shops.session(goal).await;
        ask(session.as_ref(), "search[linen shirt]").await.unwrap();
        let began = Instant::now();
        ask(session.as_ref(), "search[linen shirt]").await.unwrap();
        let moment = began.elapsed().mul_f64(share);
        let folder = shops.pool.folder.path().to_owned();
        let killing = tokio::task::spawn_blocking(move || {
            std::thread::sleep(moment);
            processes(&folder).iter().for_each(crate::browser::webdriver::tests::support::Process::kill);
        });
        // Every reply is either correct or a fault.
        let mut replies = Vec::new();
        let actions =
            ["click[next >]", "click[< prev]", "search[lamp]", "click[back to search]", "search[shirt]"];
        for action in actions.into_iter().cycle() {
            if killing.is_finished() {
                break;
            }
            let reply = ask(session.as_ref(), action).await;
            let failed = reply.is_err();
            replies.push((action, reply));
            if failed {
                break;
            }
        }
        killing.await.unwrap();
        let pair = shops.pair(goal).await;
        for _ in 0..2 {
            pair.act("search[linen shirt]").await.unwrap();
        }
        for (action, reply) in replies {
            match reply {
                Ok(reply) => assert_eq!(reply, ToolReply::Shop(pair.act(action).await.unwrap())),
                Err(_) => faults += 1,
            }
        }
        if let Err(fault) = ask(session.as_ref(), "click[nothing]").await {
            assert!(fault.to_string().contains("an earlier step"), "{fault}");
        }
        pair.close().await;
        // A browser that dies between two calls is replaced without a fault.
        if faults >= 2 {
            break;
        }
    }
    assert!(faults > 0, "no browser died in time");
    shops.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pictures_are_kept_by_unit_and_attempt() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let shops = Shops::open(None, TestPool::new(1), Some(folder.path().join("pictures")));
    let goal = &shops.goals[0];
    let unit = unit(goal).id;
    for steps in [3, 2] {
        let session = shops.session(goal).await;
        for _ in 0..steps {
            ask(session.as_ref(), "search[linen shirt]").await.unwrap();
        }
        session.close().await;
        let kept: Vec<PathBuf> = std::fs::read_dir(folder.path().join("pictures").join(unit.as_str()))
            .unwrap()
            .map(|entry| entry.unwrap().path())
            .collect();
        assert_eq!(kept.len(), steps, "{kept:?}");
        for path in kept {
            assert!(std::fs::read(&path).unwrap().starts_with(b"\x89PNG"), "{}", path.display());
        }
    }
    shops.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_elsewhere_serves_as_well() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let pool = TestPool::with(2, |settings| {
        settings.browser = server.url.parse::<BrowserName>().unwrap();
        settings.chromium = Some(server.chromium.clone());
    });
    let shops = Shops::open(None, pool, None);
    let pair = shops.pair(&shops.goals[0]).await;
    pair.act("search[linen shirt]").await.unwrap();
    pair.act("click[lm00000001]").await.unwrap();
    assert!(pair.act("click[buy now]").await.unwrap().purchase.is_some());
    pair.close().await;
    shops.pool.pool.close().await;
    shops.close().await;
}
