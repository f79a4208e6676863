//! Normal use of pages.

use std::time::Duration;

use serde_json::json;

use crate::browser::BrowserName;
use crate::browser::webdriver::tests::support::{Server, Site, TestPool, processes, started};
use crate::browser::webdriver::{BrowserError, BrowserLease, BrowserRefusal};

async fn search(lease: &mut BrowserLease, site: &Site, words: &str, kind: &str) -> Vec<String> {
    lease.goto(&site.page("/")).await.unwrap();
    let field = lease.find_by_role_and_text("textbox", "Words").await.unwrap();
    lease.type_text(&field, "something else").await.unwrap();
    lease.type_text(&field, words).await.unwrap();
    let list = lease.find_by_role_and_text("combobox", "Kind").await.unwrap();
    lease.select(&list, kind).await.unwrap();
    let button = lease.find_by_role_and_text("button", "search").await.unwrap();
    lease.click(&button).await.unwrap();
    lease.read_visible_texts(None).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn forms_are_filled_in_and_sent() {
    let Some((site, pool, mut lease)) = started().await else { return };
    let texts = search(&mut lease, &site, "red lamp & 100% wool", "Lamps").await;
    assert_eq!(texts, ["words: red lamp & 100% wool", "kind: b"]);
    // Line ends do not submit the form, the driver's private key codes are not sent, and all of Unicode can
    // be typed.
    let texts = search(&mut lease, &site, "a\nb\u{e007}\u{e012}c \u{1f9e6} é", "b").await;
    assert_eq!(texts, ["words: a bc \u{1f9e6} é", "kind: b"]);
    let field = lease.find_by_css("p").await;
    let tag = lease.execute("return arguments[0].localName;", vec![field.argument()]).await.unwrap();
    assert_eq!(tag, json!("p"));
    assert!(lease.address().await.unwrap().starts_with(&site.page("/results?words=a+bc")));
    let picture = lease.screenshot().await.unwrap();
    assert!(picture.starts_with(b"\x89PNG\r\n\x1a\n") && picture.len() > 1000);
    lease.goto(&site.page("/")).await.unwrap();
    let field = lease.find_by_role_and_text("textbox", "Words").await.unwrap();
    lease.type_text(&field, "enter").await.unwrap();
    let button = lease.find_by_role_and_text("button", "Search").await.unwrap();
    lease.click(&button).await.unwrap();
    assert_eq!(lease.read_visible_texts(Some("p")).await.unwrap(), ["words: enter", "kind: a"]);
    drop(lease);
    assert!(pool.left().is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn clicks_wait_for_the_page_that_they_lead_to() {
    let Some((site, _pool, mut lease)) = started().await else { return };
    for name in ["Script submits", "Script asks to submit", "Script moves", "Promise moves", "Link", "Pick"] {
        lease.goto(&site.page("/clicks")).await.unwrap();
        if name == "Pick" {
            let list = lease.find_by_role_and_text("combobox", name).await.unwrap();
            lease.select(&list, "some").await.unwrap();
        } else {
            let button = lease.find_by_role_and_text("button", name).await.unwrap();
            lease.click(&button).await.unwrap();
        }
        let texts = lease.read_visible_texts(Some("p")).await.unwrap();
        assert_eq!(texts, ["words: w", "kind: k"], "{name}");
    }
    lease.goto(&site.page("/clicks")).await.unwrap();
    for name in ["Prevented", "Pushed", "Taken over", "Hash", "Dialog"] {
        let button = lease.find_by_role_and_text("button", name).await.unwrap();
        lease.click(&button).await.unwrap();
    }
    assert_eq!(lease.read_visible_texts(Some("p")).await.unwrap(), ["stayed: 12345"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_a_person_could_not_do_is_refused_and_the_session_goes_on() {
    let Some((site, _pool, mut lease)) = started().await else { return };
    lease.goto(&site.page("/")).await.unwrap();
    for (role, text) in [("button", "Secret"), ("button", "Nothing"), ("link", "Search"), ("x\"]", "Search")]
    {
        let found = lease.find_by_role_and_text(role, text).await;
        assert!(matches!(found, Err(BrowserError::Refused(BrowserRefusal::NotFound(_)))), "{found:?}");
    }
    assert!(lease.find_by_role_and_text("link", "two words").await.is_ok());
    assert_eq!(lease.find_all("button", None).await.unwrap().len(), 3);
    for text in ["Closed", "Covered"] {
        let button = lease.find_by_role_and_text("button", text).await.unwrap();
        let clicked = lease.click(&button).await;
        assert!(matches!(clicked, Err(BrowserError::Refused(BrowserRefusal::NotUsable(_)))), "{clicked:?}");
    }
    let list = lease.find_by_role_and_text("combobox", "Kind").await.unwrap();
    let chosen = lease.select(&list, "Sofas").await;
    assert!(matches!(chosen, Err(BrowserError::Refused(BrowserRefusal::NotFound(_)))), "{chosen:?}");
    let texts = lease.read_visible_texts(None).await.unwrap();
    assert!(texts.iter().all(|text| !text.contains("unseen") && !text.contains("Secret")), "{texts:?}");

    // Browsers do not follow such a link.
    let files = lease.find_by_role_and_text("link", "Files").await.unwrap();
    lease.click(&files).await.unwrap();
    assert_eq!(lease.address().await.unwrap(), site.page("/"));
    let elsewhere = lease.find_by_role_and_text("link", "Elsewhere").await.unwrap();
    let clicked = lease.click(&elsewhere).await;
    assert!(
        matches!(&clicked, Err(BrowserError::Refused(BrowserRefusal::NotAllowed(address))) if address.contains("elsewhere")),
        "{clicked:?}"
    );
    assert_eq!(lease.address().await.unwrap(), "about:blank");
    let gone = lease.click(&list).await;
    assert!(
        matches!(gone, Err(BrowserError::Refused(BrowserRefusal::Gone | BrowserRefusal::NotFound(_)))),
        "{gone:?}"
    );
    for address in [
        "file:///etc/passwd",
        "http://elsewhere.example/",
        "data:text/html,x",
        "javascript:1",
        "chrome://version",
    ] {
        let loaded = lease.goto(address).await;
        assert!(matches!(loaded, Err(BrowserError::Refused(BrowserRefusal::NotAllowed(_)))), "{loaded:?}");
    }
    let long = lease.type_text(&list, &"x".repeat(20_000)).await;
    assert!(matches!(long, Err(BrowserError::Refused(BrowserRefusal::TooLarge { .. }))), "{long:?}");
    assert!(search(&mut lease, &site, "still", "Lamps").await.contains(&"words: still".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_elsewhere_is_used_and_left_as_it_was() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let site = Site::start().await;
    let folder = tempfile::tempdir().unwrap();
    let server = Server::start(folder.path());
    let name: BrowserName = server.url.parse().unwrap();
    let pool = TestPool::with(1, |settings| {
        settings.browser = name;
        settings.chromium = Some(server.chromium.clone());
    });
    let mut lease = pool.session().await.unwrap();
    assert_eq!(search(&mut lease, &site, "a", "Lamps").await, ["words: a", "kind: b"]);
    assert!(processes(folder.path()).len() > 1);
    // The session ends with the pool; the server continues to run.
    drop((lease, pool));
    let mut left = Vec::new();
    for _ in 0..100 {
        left = processes(folder.path());
        if left.len() == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(left.len() == 1 && left[0].line.contains("chromedriver"), "{left:?}");
}
