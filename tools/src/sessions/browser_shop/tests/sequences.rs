//! Random sequences of actions, chosen from the elements of the pages and from texts that agents write.
//!
//! Runs 4 sequences on the small catalogue, and 4 on the real one if it is available, each with a search
//! and up to three more actions; `LUMOS_SEQUENCES` sets another number, `LUMOS_TEST_SEED` the first seed. The actions are sent in one call or
//! in several. Some calls reset the session and replay the earlier actions, as lumos's loop does at every
//! click.

use futures::stream::{self, StreamExt};
use lumos_environments::shop::Goal;
use lumos_tasks::ToolReply;
use lumos_tasks::families::shop::ShopRequest;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng};

use super::support::{Shops, ask};
use crate::browser::webdriver::tests::support::TestPool;

const SEARCHES: [&str; 12] = [
    "search[<r> ten]",
    "search[<c> garden]",
    "search[<q> yoga mat]",
    "search[<a> soft]",
    "search[<c>]",
    "search[ ]",
    "search[zzz no such thing zzz]",
    "search[Größe \"M\" & <b>bold</b> 100%]",
    "search[a]b] and more",
    "search[search_results item_page]",
    "search[😀 lamp]",
    "search[\tred\r lamp \u{e000}]",
];

const NONSENSE: [&str; 8] = [
    "click[search]",
    "click[no such button]",
    "click[Buy Now",
    "buy now",
    "Click[buy now]",
    "click[< Prev]",
    "click[Next >]",
    "",
];

/// Returns a search for some words of the instruction, or one of the unusual ones.
fn search(random: &mut StdRng, instruction: &str) -> String {
    if random.random_ratio(1, 4) {
        return (*SEARCHES.choose(random).unwrap()).to_owned();
    }
    let words: Vec<&str> = instruction.split_whitespace().filter(|_| random.random_ratio(1, 2)).collect();
    format!("search[{}]", words.join(" "))
}

/// Returns the next action on a page with these clickable elements.
fn next(random: &mut StdRng, clickables: &[String], instruction: &str) -> String {
    match random.random_range(0..10) {
        0 => search(random, instruction),
        1 => (*NONSENSE.choose(random).unwrap()).to_owned(),
        // The first two elements are followed by products, or by an item's buttons and options.
        2..=6 => match clickables.get(2..).unwrap_or_default().choose(random) {
            Some(text) => format!("click[{text}]"),
            None => "click[buy now]".to_owned(),
        },
        7 => "click[buy now]".to_owned(),
        _ => format!("click[{}]", clickables.choose(random).map_or("buy now", String::as_str)),
    }
}

/// Returns actions that are possible on the pages they lead to, which the shop in memory determines.
async fn actions(random: &mut StdRng, shops: &Shops, goal: &Goal) -> Vec<String> {
    let scout = shops.in_memory(goal).await;
    let mut actions = vec![search(random, &goal.instruction_text)];
    for _ in 0..random.random_range(0..=3) {
        let reply = ask(scout.as_ref(), actions.last().unwrap()).await.unwrap();
        let ToolReply::Shop(reply) = reply else { break };
        actions.push(next(random, &reply.clickables, &goal.instruction_text));
    }
    actions
}

/// Performs the actions in one call or in several.
async fn sequence(seed: u64, shops: &Shops) -> Tally {
    eprintln!("sequence with seed {seed}");
    let mut random = StdRng::seed_from_u64(seed);
    let goal = shops.goals.choose(&mut random).unwrap();
    let actions = actions(&mut random, shops, goal).await;
    let pair = shops.pair(goal).await;
    let mut tally = Tally { actions: actions.len(), ..Tally::default() };
    let mut done = 0;
    while done < actions.len() {
        let last = if random.random_ratio(1, 4) { done } else { actions.len() - 1 };
        // Earlier actions are replayed only after a reset, as in lumos's loop.
        let reset = done == 0 || random.random_ratio(1, 2);
        let from = if reset { 0 } else { done };
        let (replay, action) = (actions[from..last].to_vec(), actions[last].clone());
        match pair.ask(ShopRequest { reset, replay, action }).await {
            Ok(reply) => tally.bought += usize::from(reply.purchase.is_some()),
            Err(_) => tally.raised += 1,
        }
        tally.calls += 1;
        done = last + 1;
    }
    pair.close().await;
    tally
}

#[derive(Debug, Default)]
struct Tally {
    actions: usize,
    calls: usize,
    bought: usize,
    raised: usize,
}

fn sequences() -> u64 {
    std::env::var("LUMOS_SEQUENCES").ok().and_then(|number| number.parse().ok()).unwrap_or(4)
}

async fn compare(name: &str, shops: Shops) {
    let began = std::time::Instant::now();
    let together = browsers() * 2;
    let first = lumos_capabilities::seed(0);
    let total = stream::iter(first..first + sequences())
        .map(|seed| sequence(seed, &shops))
        .buffer_unordered(together)
        .fold(Tally::default(), async |total, one| Tally {
            actions: total.actions + one.actions,
            calls: total.calls + one.calls,
            bought: total.bought + one.bought,
            raised: total.raised + one.raised,
        })
        .await;
    eprintln!("{name}: {} sequences, {total:?}, in {:.1} s", sequences(), began.elapsed().as_secs_f64());
    assert!(total.actions > 0 && (total.bought > 0 && total.raised > 0 || sequences() < 200), "{total:?}");
    shops.close().await;
}

fn browsers() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(8)
}

fn pool() -> TestPool {
    TestPool::new(browsers())
}

#[tokio::test(flavor = "multi_thread")]
async fn sequences_in_the_small_catalogue() {
    const TEST: &str = "sequences_in_the_small_catalogue";
    if !lumos_capabilities::has_browser() {
        return;
    }
    compare(TEST, Shops::open(None, pool(), None)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sequences_in_the_real_catalogue() {
    const TEST: &str = "sequences_in_the_real_catalogue";
    let Some(folder) = lumos_capabilities::shared("data/webshop") else { return };
    if !lumos_capabilities::has_browser() {
        return;
    }
    compare(TEST, Shops::open(Some(&folder), pool(), None)).await;
}
