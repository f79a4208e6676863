//! The texts of all candidates of a step's page, and how long they take: `benches/web/run.sh` sets them beside Python's.

use std::time::Instant;

use lumos_environments::dom::{Brackets, CandidateTexts, Tree};
use serde_json::{Value, json};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let path = arguments.next().expect("a file with a step");
    let rounds: usize = arguments.next().map_or(5, |rounds| rounds.parse().expect("a number of rounds"));
    let mut step: Value =
        serde_json::from_str(&std::fs::read_to_string(path).expect("a readable file")).expect("JSON");
    if let Some(action) = step.get_mut("action") {
        step = action.take();
    }
    let page = step["cleaned_html"].as_str().expect("a page");
    let ids: Vec<&str> = ["pos_candidates", "neg_candidates"]
        .iter()
        .flat_map(|list| step[list].as_array().expect("candidates"))
        .map(|candidate| candidate["backend_node_id"].as_str().expect("an id"))
        .collect();
    let (mut texts, mut best) = (Vec::new(), f64::INFINITY);
    for _ in 0..rounds {
        let started = Instant::now();
        let tree = Tree::parse(page).expect("a page");
        let mut written = CandidateTexts::new(&tree);
        texts = ids.iter().map(|id| written.write(id, Brackets::Round).expect("a candidate")).collect();
        best = best.min(started.elapsed().as_secs_f64());
    }
    println!("{}", json!({ "texts": texts, "seconds": best }));
}
