//! Parses pages that an agent acts on.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_environments::dom::{Tree, candidates};
use lumos_tasks::families::web::{CandidateScope, WebStep};

/// Separates the candidates' ids from the page.
const BETWEEN: char = '\u{1}';

fuzz_target!(|input: &str| {
    let (ids, page) = input.split_once(BETWEEN).unwrap_or(("1,2,3", input));
    if Tree::parse(page).is_err() {
        return;
    }
    let mut ids = ids.split(',').take(64).map(str::to_owned);
    let positives = ids.by_ref().take(4).collect();
    let step = WebStep { page: page.to_owned(), positives, negatives: ids.collect() };
    for scope in [CandidateScope::Published, CandidateScope::All] {
        let _ = candidates(&step, scope);
    }
});
