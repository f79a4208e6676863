//! Wikipedia over HTTP, with a local site of the same kind.

use std::convert::Infallible;
use std::path::Path;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::response::Response;
use futures::future::join_all;
use futures::stream;
use lumos_tasks::families::qa::page::WikiPage;
use lumos_tasks::{Behaviour, ToolCall, ToolReply, WikiRequest};
use lumos_tools::{LiveWiki, Remembering, ToolFault, Tools, WikiSettings};
use tokio::net::TcpListener;

const KYOTO: &str =
    "<p>Kyoto is a city in Japan that was its capital for a thousand years. It has temples.</p>";

/// A site that records its requests.
#[derive(Clone, Default)]
struct Site {
    requests: Arc<AtomicU32>,
    /// Bytes of the long page that were sent.
    sent: Arc<AtomicU64>,
    asked: Arc<Mutex<Vec<(String, Instant)>>>,
    agents: Arc<Mutex<Vec<String>>>,
}

impl Site {
    fn requests(&self) -> u32 {
        self.requests.load(Ordering::SeqCst)
    }

    async fn start(&self) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let app = Router::new().fallback(answer).with_state(self.clone());
        tokio::spawn(async move { axum::serve(listener, app).await });
        format!("http://{address}")
    }
}

fn html(text: impl Into<Body>) -> Response {
    Response::builder().header("content-type", "text/html; charset=UTF-8").body(text.into()).unwrap()
}

fn status(code: u16) -> Response {
    Response::builder().status(code).body(Body::empty()).unwrap()
}

fn redirect(place: &str) -> Response {
    Response::builder().status(302).header("location", place).body(Body::empty()).unwrap()
}

/// Half of a page, followed by a connection error.
fn truncated() -> Response {
    let half = Bytes::from_static(KYOTO.as_bytes()).slice(..20);
    let body = stream::iter([Ok::<_, std::io::Error>(half), Err(std::io::Error::other("disconnected"))]);
    Response::builder()
        .header("content-type", "text/html; charset=UTF-8")
        .header("content-length", KYOTO.len())
        .body(Body::from_stream(body))
        .unwrap()
}

/// 50 MB in pieces, without a content length.
fn endless(site: &Site) -> Response {
    let sent = Arc::clone(&site.sent);
    let piece = Bytes::from(vec![b'x'; 1 << 16]);
    html(Body::from_stream(stream::iter((0..800).map(move |_| {
        sent.fetch_add(piece.len() as u64, Ordering::SeqCst);
        Ok::<_, Infallible>(piece.clone())
    }))))
}

async fn answer(State(site): State<Site>, request: Request) -> Response {
    let address = request.uri().path_and_query().unwrap().to_string();
    let before = site.asked.lock().unwrap().iter().filter(|(asked, _)| *asked == address).count();
    site.requests.fetch_add(1, Ordering::SeqCst);
    site.asked.lock().unwrap().push((address.clone(), Instant::now()));
    let agent = request.headers()["user-agent"].to_str().unwrap().to_owned();
    site.agents.lock().unwrap().push(agent);
    match address.as_str() {
        "/w/index.php?search=Kyoto" => redirect("/wiki/Kyoto"),
        "/wiki/Kyoto" => html(KYOTO),
        "/w/index.php?search=old+capital" => html(
            "<div class=\"mw-search-result-heading\">Kyoto</div><div class=\"mw-search-result-heading\">Nara</div>",
        ),
        "/wiki/Mercury" => {
            html("<p>Mercury may refer to:</p><ul><li><a href=\"/wiki/Planet\" title=\"x\">x</a></li></ul>")
        }
        "/wiki/Latin" => Response::builder()
            .header("content-type", "text/html; charset=ISO-8859-1")
            .body(Body::from(
                &b"<p>The caf\xe9 of this page has more than ten words in it, which count.</p>"[..],
            ))
            .unwrap(),
        "/wiki/Broken" => {
            html(&b"<p>The caf\xe9 of this page has more than ten words in it, which count.</p>"[..])
        }
        "/wiki/Busy" if before == 0 => {
            Response::builder().status(429).header("retry-after", "1").body(Body::empty()).unwrap()
        }
        "/wiki/Shut" => {
            Response::builder().status(503).header("retry-after", "3600").body(Body::empty()).unwrap()
        }
        "/wiki/Fails_twice" if before < 2 => status(500),
        "/wiki/Cut_once" if before == 0 => truncated(),
        "/wiki/Empty_once" if before == 0 => html(""),
        "/wiki/Slow_once" if before == 0 => {
            tokio::time::sleep(Duration::from_secs(20)).await;
            status(500)
        }
        "/wiki/Busy" | "/wiki/Fails_twice" | "/wiki/Cut_once" | "/wiki/Empty_once" | "/wiki/Slow_once" => {
            html(KYOTO)
        }
        "/wiki/Always_cut" => truncated(),
        "/wiki/Always_fails" => status(502),
        "/wiki/Elsewhere" => redirect("https://example.com/wiki/X"),
        "/wiki/Inside" => redirect("http://169.254.169.254/latest/meta-data"),
        "/wiki/Moved" => redirect("https://example.com/wiki/Moved"),
        "/wiki/Round" => redirect("/wiki/Round"),
        "/wiki/Nowhere" => status(302),
        "/wiki/Forbidden" => status(403),
        "/wiki/Long" => endless(&site),
        "/wiki/Declared" => Response::builder()
            .header("content-length", 50_000_000)
            .body(Body::from_stream(stream::pending::<Result<Bytes, Infallible>>()))
            .unwrap(),
        "/wiki/Missing" => Response::builder()
            .status(404)
            .header("content-type", "text/html; charset=UTF-8")
            .body(Body::from(
                "<p>Wikipedia does not have an article with this exact name, so please search for it.</p>",
            ))
            .unwrap(),
        search if search.starts_with("/w/api.php?") => {
            let titles = match search.split("srsearch=").nth(1) {
                Some("Where+did+Holst+live") => "",
                Some("Where+OR+did+OR+Holst+OR+live") => r#"{"title":"Gustav Holst"},{"title":"Thaxted"}"#,
                Some("limit") => return json(r#"{"error":{"code":"ratelimited"}}"#),
                _ => return json("<html>not JSON"),
            };
            json(&format!(r#"{{"query":{{"search":[{titles}]}}}}"#))
        }
        _ => status(404),
    }
}

fn json(text: &str) -> Response {
    Response::builder().header("content-type", "application/json").body(Body::from(text.to_owned())).unwrap()
}

fn settings(endpoint: &str, cache: Option<&Path>) -> WikiSettings {
    WikiSettings {
        endpoint: endpoint.to_owned(),
        timeout: Duration::from_millis(500),
        retries: 2,
        pace: Duration::from_millis(5),
        longest_rest: Duration::from_secs(5),
        most_bytes: 1 << 20,
        cache: cache.map(Path::to_owned),
        cache_bytes: 1 << 20,
    }
}

async fn wiki(site: &Site) -> LiveWiki {
    LiveWiki::new(settings(&site.start().await, None)).unwrap()
}

async fn ask(wiki: &impl Tools, query: &str) -> Result<WikiPage, ToolFault> {
    let call = ToolCall::Wiki { request: WikiRequest::of(query), reading: Behaviour::Paper };
    match wiki.call(&call).await? {
        ToolReply::Wiki(page) => Ok(page),
        other => panic!("{other:?}"),
    }
}

fn kyoto() -> WikiPage {
    let sentences =
        ["Kyoto is a city in Japan that was its capital for a thousand years.", "It has temples.."];
    WikiPage::Article { table: None, sentences: sentences.map(str::to_owned).to_vec() }
}

fn listed(entries: &[&str]) -> WikiPage {
    WikiPage::Listed(entries.iter().map(|entry| (*entry).to_owned()).collect())
}

#[tokio::test]
async fn pages_lists_and_meanings_are_read() {
    let site = Site::default();
    let wiki = wiki(&site).await;
    assert_eq!(ask(&wiki, "Kyoto").await, Ok(kyoto()));
    assert_eq!(ask(&wiki, "https://en.wikipedia.org/wiki/Kyoto#Temples").await, Ok(kyoto()));
    assert_eq!(ask(&wiki, "old capital").await, Ok(listed(&["Kyoto", "Nara"])));
    assert_eq!(ask(&wiki, "/wiki/Mercury").await, Ok(listed(&["/wiki/Planet"])));
    let Ok(WikiPage::Article { sentences, .. }) = ask(&wiki, "/wiki/Missing").await else { panic!() };
    assert!(sentences[0].starts_with("Wikipedia does not have"), "the page states that it does not exist");
    assert!(
        site.agents
            .lock()
            .unwrap()
            .iter()
            .all(|agent| agent.starts_with("lumos-eval/") && agent.contains("https://"))
    );
}

#[tokio::test]
async fn the_search_takes_all_words_and_then_any() {
    let site = Site::default();
    let wiki = wiki(&site).await;
    let search = |query: &str| ToolCall::Search { query: query.to_owned(), most: 3 };
    let found = wiki.call(&search("Where did Holst live? Wikipedia")).await;
    let expected = ["https://en.wikipedia.org/wiki/Gustav_Holst", "https://en.wikipedia.org/wiki/Thaxted"];
    assert_eq!(found, Ok(ToolReply::Search(expected.map(str::to_owned).to_vec())));
    assert!(wiki.call(&search("limit")).await.unwrap_err().message.contains("ratelimited"));
    assert!(
        wiki.call(&search("other")).await.unwrap_err().message.contains("invalid response of the search")
    );
    assert_eq!(wiki.call(&search("?!")).await, Ok(ToolReply::Search(Vec::new())));
}

#[tokio::test]
async fn what_passes_is_asked_again() {
    let site = Site::default();
    let wiki = wiki(&site).await;
    for (name, requests) in [("Fails_twice", 3), ("Cut_once", 2), ("Empty_once", 2), ("Slow_once", 2)] {
        let before = site.requests();
        assert_eq!(ask(&wiki, &format!("/wiki/{name}")).await, Ok(kyoto()), "{name}");
        assert_eq!(site.requests() - before, requests, "{name}");
    }
}

#[tokio::test]
async fn a_rest_that_is_asked_for_is_granted_by_all() {
    let site = Site::default();
    let wiki = wiki(&site).await;
    let began = Instant::now();
    let other = async {
        tokio::time::sleep(Duration::from_millis(200)).await;
        ask(&wiki, "/wiki/Kyoto").await
    };
    let (busy, other) = tokio::join!(ask(&wiki, "/wiki/Busy"), other);
    assert_eq!((busy, other), (Ok(kyoto()), Ok(kyoto())));
    assert!(began.elapsed() >= Duration::from_secs(1));
    let asked = site.asked.lock().unwrap();
    assert!(asked[1..].iter().all(|(_, at)| at.duration_since(asked[0].1) >= Duration::from_millis(990)));
}

#[tokio::test]
async fn what_does_not_pass_is_a_fault() {
    let site = Site::default();
    let wiki = wiki(&site).await;
    for (name, requests, told) in [
        ("Always_fails", 3, "502"),
        ("Always_cut", 3, ""),
        ("Moved", 1, "example.com, which is not an allowed host"),
        ("Round", 6, "too many redirects"),
        ("Nowhere", 1, "without a location"),
        ("Forbidden", 1, "403"),
        ("Shut", 1, "Retry-After: 3600 s"),
    ] {
        let before = site.requests();
        let fault = ask(&wiki, &format!("/wiki/{name}")).await.unwrap_err();
        assert!(fault.tool == "wiki" && fault.message.contains(told), "{name}: {fault}");
        assert_eq!(site.requests() - before, requests, "{name}");
    }
    let gone = LiveWiki::new(settings("http://127.0.0.1:1", None)).unwrap();
    assert!(ask(&gone, "Kyoto").await.is_err());
}

#[tokio::test]
async fn addresses_that_lead_to_no_page_are_errors_of_the_agent() {
    let site = Site::default();
    let wiki = wiki(&site).await;
    for (name, told) in [
        ("Elsewhere", "example.com, which is not an allowed host"),
        ("Inside", "169.254.169.254, which is not an allowed host"),
        ("Long", "longer than 1048576 bytes"),
        ("Declared", "longer than 1048576 bytes"),
    ] {
        let before = site.requests();
        let Ok(WikiPage::Unreadable { message }) = ask(&wiki, &format!("/wiki/{name}")).await else {
            panic!("{name}")
        };
        assert!(message.contains(told), "{name}: {message}");
        assert_eq!(site.requests() - before, 1, "{name}");
    }
    // The limit, and the buffers of both sides.
    let sent = site.sent.load(Ordering::SeqCst);
    assert!(sent < 16 << 20, "{sent} bytes of 50 MB were sent");
}

#[tokio::test]
async fn other_hosts_are_not_asked_whatever_the_query() {
    let site = Site::default();
    let endpoint = site.start().await;
    let wiki = LiveWiki::new(settings(&endpoint, None)).unwrap();
    let other = Site::default();
    let elsewhere = other.start().await.replace("http://", "");
    for query in [
        format!("https://{elsewhere}/wiki/Kyoto"),
        format!("@{elsewhere}/wiki/Kyoto"),
        format!("http://{elsewhere}/?https://"),
        "https://example.com/wiki/X".to_owned(),
        "file:///etc/passwd#https://".to_owned(),
    ] {
        let page = ask(&wiki, &query).await;
        assert!(matches!(page, Ok(WikiPage::Unreadable { .. })), "{query}: {page:?}");
    }
    assert_eq!((site.requests(), other.requests()), (0, 0));
}

#[tokio::test]
async fn encodings_are_those_that_the_site_names() {
    let wiki = wiki(&Site::default()).await;
    for (name, letter) in [("Latin", 'é'), ("Broken", '\u{fffd}')] {
        let Ok(WikiPage::Article { sentences, .. }) = ask(&wiki, &format!("/wiki/{name}")).await else {
            panic!()
        };
        assert!(sentences[0].contains(letter), "{sentences:?}");
    }
}

#[tokio::test]
async fn documents_are_kept_on_disk_for_other_processes() {
    let folder = tempfile::tempdir().unwrap();
    let site = Site::default();
    let endpoint = site.start().await;
    let wiki = || LiveWiki::new(settings(&endpoint, Some(folder.path()))).unwrap();
    assert_eq!(ask(&wiki(), "Kyoto").await, Ok(kyoto()));
    let requests = site.requests();
    assert_eq!(ask(&wiki(), "Kyoto").await, Ok(kyoto()));
    let call = ToolCall::Wiki { request: WikiRequest::of("Kyoto"), reading: Behaviour::Corrected };
    assert_eq!(wiki().call(&call).await, Ok(ToolReply::Wiki(kyoto())), "the same document, read differently");
    assert_eq!(site.requests(), requests, "the document is not fetched again");
    // Failed responses are not cached.
    let fails = wiki();
    assert!(ask(&fails, "/wiki/Always_fails").await.is_err());
    assert!(ask(&wiki(), "/wiki/Always_fails").await.is_err());
    assert_eq!(site.requests(), requests + 6);
}

#[tokio::test]
async fn requests_keep_to_the_pace_and_identical_ones_are_made_once() {
    let site = Site::default();
    let endpoint = site.start().await;
    let paced = WikiSettings { pace: Duration::from_millis(60), ..settings(&endpoint, None) };
    let wiki = Remembering::new(Arc::new(LiveWiki::new(paced).unwrap()));
    let queries = ["/wiki/Kyoto", "/wiki/Mercury", "/wiki/Latin", "/wiki/Kyoto", "/wiki/Kyoto"];
    let began = Instant::now();
    assert!(join_all(queries.map(|query| ask(&wiki, query))).await.iter().all(Result::is_ok));
    let mut asked: Vec<Instant> = site.asked.lock().unwrap().iter().map(|(_, at)| *at).collect();
    asked.sort();
    assert_eq!(asked.len(), 3);
    // From the beginning, because the first request may take longer to arrive than the last.
    let whole = asked[2].duration_since(began);
    assert!(whole >= Duration::from_millis(120), "three requests within {whole:?}, 60 ms apart");
}
