//! The site shows and does what the shop in memory does.

use std::sync::Arc;

use lumos_environments::shop::{GoalMode, Stock, Visit, draw};
use lumos_worker::sessions::catalogue::ShopFiles;
use lumos_worker::sessions::shop::staff;
use lumos_worker::sessions::site::{Site, serve};
use tokio::net::TcpListener;

/// What a page's `<main>` shows: its texts, by the rules of the observation.
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
    let server = tokio::spawn(serve(listener, Arc::clone(&site), std::future::pending()));
    let client = reqwest::Client::new();
    let front = client.get(format!("{address}/")).send().await.unwrap().text().await.unwrap();
    assert!(front.contains("24 products"), "{front}");

    let mut visit = Visit::new(staff, goals[0].clone());
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
    assert!(page(other).await.contains(&goals[1].instruction_text), "visits are apart");
    let missing = client.get(format!("{address}/visits/none")).send().await.unwrap();
    assert_eq!(missing.status(), 404);
    server.abort();
}
