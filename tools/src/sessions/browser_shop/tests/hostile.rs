//! A hostile catalogue: texts that are HTML, very long, invisible, or equal to the names of buttons.

use std::path::Path;

use lumos_tasks::families::shop::ShopRequest;
use serde_json::json;

use super::support::Shops;
use crate::browser::webdriver::tests::support::TestPool;

/// Options that are hard to distinguish, to display or to send.
fn options() -> Vec<String> {
    let mut options: Vec<String> = [
        "<img src=x onerror=alert(1)>",
        "\"quoted\" & 'so'",
        "&amp; &lt;b&gt;",
        "100% cotton + more",
        "../../x?y=z#w;a,b",
        "two  blanks",
        "two blanks",
        " blank before",
        "Upper Case",
        "upper case",
        "line\rreturn",
        "zero\0byte",
        "no\u{a0}break",
        "\u{202e}backwards\u{202c}",
        "zero\u{200b}width",
        "\u{200b}",
        "👩‍👩‍👧 family \u{10ffff}",
        "non\u{ffff}character \u{fdd0}",
        "private \u{e005} use",
        "é",
        "e\u{301}",
        "search",
        "reviews",
        "next >",
        "a[b",
        "a]b",
        "a: b",
        "",
    ]
    .map(str::to_owned)
    .to_vec();
    options.push("long ".repeat(800));
    options.push("unbroken".repeat(400));
    options
}

fn write(folder: &Path) {
    let product = |asin: &str, title: String, groups: serde_json::Value| {
        json!({ "product": {
            "asin": asin, "name": title, "category": "garden", "query": "lamp",
            "product_category": "Home › <Lamps>", "full_description": "</main><script>alert(2)</script>\n\n  lamp ",
            "small_description": ["<b>bold</b>", "", " ", " \n ", "\u{a0}", "line\r\nend", "</p><button>Buy Now</button>"],
            "pricing": [10.0, 20.5], "images": [], "options": groups,
        }})
    };
    let hostile = "</h2><script>document.title = 'x'</script> & \"lamp\" \u{202e}😀";
    let documents = [
        product(
            "LAMP000001",
            hostile.to_owned(),
            json!({ "Colour": options(), "": ["red"], "size": ["red", "two blanks"] }),
        ),
        product(
            "LAMP000002",
            "lamp ".repeat(4000),
            json!({ "a": ["buy now", "< prev"], "b": ["description"] }),
        ),
        product("LAMP000003", "lamp".to_owned() + &"x".repeat(5000), json!({ "c": ["back to search"] })),
    ];
    let lines: Vec<String> = documents.iter().map(ToString::to_string).collect();
    std::fs::write(folder.join("items_1000_documents.jsonl"), lines.join("\n")).unwrap();
    let attributes = json!({ "LAMP000003": {
        "attributes": ["soft"], "instruction": "Find me a <lamp> & \"more\"", "instruction_attributes": ["soft"],
    }});
    std::fs::write(folder.join("items_ins_v2_1000.json"), attributes.to_string()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn every_text_of_a_hostile_catalogue_is_shown_and_clicked() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    write(folder.path());
    let shops = Shops::open(Some(folder.path()), TestPool::new(1), None);
    let pair = shops.pair(&shops.goals[0]).await;
    let found = pair.act("search[lamp]").await.unwrap();
    assert!(
        ["lamp000001", "lamp000002", "lamp000003"]
            .iter()
            .all(|asin| found.clickables.contains(&(*asin).to_owned()))
    );
    for details in ["features", "description", "reviews"] {
        pair.ask(ShopRequest {
            reset: true,
            replay: vec!["search[lamp]".to_owned(), "click[lamp000001]".to_owned()],
            action: format!("click[{details}]"),
        })
        .await
        .unwrap();
    }
    let item = pair.act("click[< prev]").await.unwrap();
    for option in options() {
        let shown = pair.act(&format!("click[{option}]")).await.unwrap();
        // An option with the name of a button acts like the button and leaves the item.
        if shown.clickables != item.clickables {
            pair.ask(ShopRequest {
                reset: true,
                replay: vec!["search[lamp]".to_owned()],
                action: "click[lamp000001]".to_owned(),
            })
            .await
            .unwrap();
        }
    }
    pair.act("click[two  blanks]").await.unwrap();
    let bought = pair.act("click[buy now]").await.unwrap();
    assert_eq!(bought.purchase.unwrap().asin, "LAMP000001");
    assert!(pair.act("click[buy now]").await.unwrap().purchase.is_none(), "bought once");

    for (product, texts) in [
        ("lamp000002", &["< prev", "buy now", "description"][..]),
        ("lamp000003", &["back to search", "attributes"]),
    ] {
        for text in texts {
            let replay = vec!["search[lamp]".to_owned(), format!("click[{product}]")];
            pair.ask(ShopRequest { reset: true, replay, action: format!("click[{text}]") }).await.unwrap();
        }
    }
    pair.close().await;
    shops.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hard_searches_are_typed_or_pasted() {
    if !lumos_capabilities::has_browser() {
        return;
    }
    let shops = Shops::open(None, TestPool::new(1), None);
    let pair = shops.pair(&shops.goals[0]).await;
    let words: String = (0..1500).map(|number| format!("word{number} ")).collect();
    for text in [
        words.as_str(),
        &"linen ".repeat(4000),
        "İstanbul ΑΣ ß",
        "linen\tshirt\u{b}x\u{1}",
        "line\u{2028}separator \u{feff}",
        "e\u{301} 👩‍👩‍👧 \u{10ffff}",
        "'; DROP TABLE products; --",
        "<r>",
        "<a> x",
        "linen shirt",
    ] {
        // A search that raises an error leaves the session where it was, and returns the error once.
        let _ = pair.act(&format!("search[{text}]")).await;
        let _ = pair.act("click[nothing]").await;
    }
    let raised = pair.act("search[<a> x]").await.unwrap_err();
    assert!(raised.starts_with("TypeError"), "{raised}");
    assert!(pair.act("click[next >]").await.is_ok());
    pair.close().await;
    shops.close().await;
}
