//! The shop's website shows and does the same as the shop in memory.

use std::sync::Arc;
use std::time::Duration;

use lumos_environments::shop::{GoalMode, ShopSession, Stock, draw};
use lumos_http::HttpLimits;
use lumos_tools::sessions::catalogue::ShopFiles;
use lumos_tools::sessions::shop::staff;
use lumos_tools::sessions::site::{Site, serve};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

/// Returns the texts of a page's `<main>` as an observation.
fn observation(html: &str) -> String {
    let main = html.split("<main").nth(1).unwrap().split("</main>").next().unwrap();
    let mut texts = Vec::new();
    for piece in main.split('<').skip(1) {
        let text = piece.split_once('>').unwrap().1;
        if !text.is_empty() {
            let text = text.replace("&lt;", "<").replace("&gt;", ">").replace("&quot;", "\"");
            texts.push(
                text.replace("&#x27;", "'").replace("&#x2f;", "/").replace("&amp;", "&").trim().to_owned(),
            );
        }
    }
    texts.join(" [SEP] ")
}

#[tokio::test]
async fn the_site_goes_the_way_of_the_shop_in_memory() {
    let stock = Stock::sample().unwrap();
    let (_, goals) = draw(stock.for_sale(), GoalMode::Synthetic);
    let staff = staff(&ShopFiles::default()).unwrap();
    let site = Arc::new(Site::new(staff.clone(), goals.clone()));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let server =
        tokio::spawn(serve(listener, Arc::clone(&site), HttpLimits::default(), CancellationToken::new()));
    let client = reqwest::Client::new();
    let front = client.get(format!("{address}/")).send().await.unwrap().text().await.unwrap();
    assert!(front.contains("24 products"), "{front}");

    let mut visit = ShopSession::new(staff, goals[0].clone());
    let path = site.begin(goals[0].clone());
    let other = site.begin(goals[1].clone());
    let page = |path: String| {
        let client = client.clone();
        let address = address.clone();
        async move { client.get(format!("{address}{path}")).send().await.unwrap().text().await.unwrap() }
    };
    assert_eq!(observation(&page(path.clone()).await), visit.observation());
    let actions = [
        ("search", "query", "linen shirt, for men's"),
        ("click", "text", "LM00000001"),
        ("click", "text", "features"),
        ("click", "text", "< prev"),
        ("click", "text", "navy blue"),
        ("click", "text", "large"),
        ("click", "text", "not there"),
        ("click", "text", "Buy Now"),
    ];
    for (verb, field, text) in actions {
        visit.step(&format!("{verb}[{text}]")).unwrap();
        let form = [(field, text)];
        let request = client.post(format!("{address}{path}/{verb}"));
        let request = if verb == "click" { request.query(&form) } else { request.form(&form) };
        let reply = request.send().await.unwrap();
        assert!(reply.status().is_success());
        let shown = reply.text().await.unwrap();
        assert_eq!(observation(&shown), visit.observation(), "{verb} {text}");
        let state: serde_json::Value =
            client.get(format!("{address}{path}/state")).send().await.unwrap().json().await.unwrap();
        assert_eq!(state["clickables"], serde_json::json!(visit.clickables()));
    }
    assert!(visit.bought().is_some());
    assert!(page(other).await.contains(&goals[1].instruction_text), "sessions are separate");
    let missing = client.get(format!("{address}/visits/none")).send().await.unwrap();
    assert_eq!(missing.status(), 404);
    server.abort();
}

#[tokio::test]
async fn half_open_connections_are_closed_and_long_forms_refused() {
    let (_, goals) = draw(Stock::sample().unwrap().for_sale(), GoalMode::Synthetic);
    let site = Arc::new(Site::new(staff(&ShopFiles::default()).unwrap(), goals.clone()));
    let path = site.begin(goals[0].clone());
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let drain = CancellationToken::new();
    let limits = HttpLimits { header_time: Duration::from_millis(200), ..HttpLimits::default() };
    let server = tokio::spawn(serve(listener, site, limits, drain.clone()));
    for sent in ["", "GET / HT"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(sent.as_bytes()).await.unwrap();
        let closed = tokio::time::timeout(Duration::from_secs(60), stream.read_to_end(&mut Vec::new())).await;
        let _ = closed.expect("the server did not close the connection");
    }
    // A session stores its search, so long forms are refused.
    let search = |words: usize| {
        let form = [("query", "linen ".repeat(words))];
        reqwest::Client::new().post(format!("http://{address}{path}/search")).form(&form).send()
    };
    assert_eq!(search(4_000).await.unwrap().status(), 200);
    assert_eq!(search(20_000).await.unwrap().status(), 413);
    drain.cancel();
    tokio::time::timeout(Duration::from_secs(60), server).await.unwrap().unwrap();
}
