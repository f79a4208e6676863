//! Measures visits to the shop as text in steps per second on one core. Each visit consists of a search, a product, its
//! description and back, up to three options, and the purchase with its reward. `benches/shop/run.sh` compares the
//! figures with the original.
//!
//! `cargo run --release --example shop_steps -- --data data --goals 500 --rounds 5 [--walks walks.jsonl]`

use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use lumos_benchmarks::get;
use lumos_environments::shop::{Goal, ShopServices, ShopSession};
use lumos_tasks::Setup;
use lumos_tools::sessions::catalogue::ShopFiles;
use lumos_tools::sessions::shop::staff;
use serde_json::json;

/// Elements that every product page has in addition to its options.
const BUTTONS: [&str; 7] =
    ["back to search", "< prev", "description", "features", "reviews", "attributes", "buy now"];

#[derive(Debug, Parser)]
struct Arguments {
    /// The data folder. Defaults to the built-in samples.
    #[arg(long)]
    data: Option<PathBuf>,
    /// Maximum number of goals.
    #[arg(long, default_value_t = 100)]
    goals: usize,
    /// Number of rounds. Each round visits all goals.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// File for actions and rewards, with one visit per line.
    #[arg(long)]
    walks: Option<PathBuf>,
}

/// Makes a visit. Returns its actions and its reward.
fn walk(staff: &ShopServices, goal: &Goal, query: &str) -> Result<(Vec<String>, f64), Box<dyn Error>> {
    let mut visit = ShopSession::new(staff.clone(), goal.clone());
    let mut actions = vec![format!("search[{query}]")];
    visit.step(&actions[0])?;
    let product = visit.clickables().into_iter().find(|text| text.len() == 10 && text.starts_with('b'));
    let product = product.ok_or("the search found no products")?;
    let mut rest = vec![product, "description".to_owned(), "< prev".to_owned()];
    rest.reverse();
    let (mut options_are_read, mut reward) = (false, 0.0);
    while let Some(text) = rest.pop() {
        let action = format!("click[{text}]");
        let step = visit.step(&action)?;
        // Every step returns the page and its clickable elements, as an agent needs them.
        reward = step.reward;
        if rest.is_empty() && !options_are_read {
            options_are_read = true;
            rest.push("buy now".to_owned());
            rest.extend(step.clickables.into_iter().filter(|text| !BUTTONS.contains(&text.as_str())).take(3));
        }
        actions.push(action);
    }
    Ok((actions, reward))
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::parse();
    let benchmark = get("webshop")?;
    let folder = arguments.data.as_ref().map(|data| data.join("webshop"));
    let staff = staff(&ShopFiles { folder, nouns: None })?;
    let source = benchmark.source(arguments.data.as_deref());
    let mut goals = Vec::new();
    for item in benchmark.open(source)?.take(arguments.goals) {
        let Setup::Shop { goal } = item?.setup else { return Err("not a goal of the shop".into()) };
        goals.push(serde_json::from_value::<Goal>(goal)?);
    }
    let mut seconds = Vec::new();
    let mut steps = 0;
    let mut walks = Vec::new();
    for _ in 0..arguments.rounds {
        let started = Instant::now();
        walks = goals
            .iter()
            .map(|goal| walk(&staff, goal, &goal.instruction_text))
            .collect::<Result<Vec<_>, _>>()?;
        seconds.push(started.elapsed().as_secs_f64());
        steps = walks.iter().map(|(actions, _)| actions.len()).sum();
    }
    if let Some(path) = arguments.walks {
        let mut out = BufWriter::new(std::fs::File::create(path)?);
        for (goal, (actions, reward)) in walks.iter().enumerate() {
            writeln!(out, "{}", json!({"goal": goal, "actions": actions, "reward": reward}))?;
        }
        out.flush()?;
    }
    println!("{}", json!({"visits": goals.len(), "steps": steps, "seconds": seconds}));
    Ok(())
}
