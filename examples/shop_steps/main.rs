//! Steps per second of visits to the shop as text: search, product, description and back, up to three options, purchase
//! with its reward; one visit after the other, on one core. `benches/shop/run.sh` sets it beside the original.
//!
//! `cargo run --release --example shop_steps -- --data data --goals 500 --rounds 5 [--walks walks.jsonl]`

use std::error::Error;
use std::io::{BufWriter, Write};
use std::path::PathBuf;
use std::time::Instant;

use clap::Parser;
use lumos_benchmarks::{DataSource, get};
use lumos_environments::shop::{Goal, ShopServices, ShopSession};
use lumos_tasks::Setup;
use lumos_worker::sessions::catalogue::ShopFiles;
use lumos_worker::sessions::shop::staff;
use serde_json::json;

/// What every product's page has besides its options.
const BUTTONS: [&str; 7] =
    ["back to search", "< prev", "description", "features", "reviews", "attributes", "buy now"];

#[derive(Debug, Parser)]
struct Arguments {
    /// The data folder; without it the samples that ship are taken.
    #[arg(long)]
    data: Option<PathBuf>,
    /// The first so many goals.
    #[arg(long, default_value_t = 100)]
    goals: usize,
    /// How often all of them are visited.
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Where actions and rewards are written, a visit a line.
    #[arg(long)]
    walks: Option<PathBuf>,
}

/// One visit: its actions, and what it earned.
fn walk(staff: &ShopServices, goal: &Goal, query: &str) -> Result<(Vec<String>, f64), Box<dyn Error>> {
    let mut visit = ShopSession::new(staff.clone(), goal.clone());
    let mut actions = vec![format!("search[{query}]")];
    visit.step(&actions[0])?;
    let product = visit.clickables().into_iter().find(|text| text.len() == 10 && text.starts_with('b'));
    let product = product.ok_or("nothing is found")?;
    let mut rest = vec![product, "description".to_owned(), "< prev".to_owned()];
    rest.reverse();
    let (mut options_are_read, mut reward) = (false, 0.0);
    while let Some(text) = rest.pop() {
        let action = format!("click[{text}]");
        let step = visit.step(&action)?;
        // What is to be seen and to be clicked is asked for at every step, as an agent does.
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
    let source = arguments.data.map_or(DataSource::Samples, |data| DataSource::in_folder(&data, benchmark));
    let mut goals = Vec::new();
    for item in benchmark.open(source)?.take(arguments.goals) {
        let Setup::Shop { goal } = item?.setup else { return Err("no goal of the shop".into()) };
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
