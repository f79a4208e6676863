//! Analyses SQL statements and results by their text alone.
#![no_main]

use libfuzzer_sys::fuzz_target;
use lumos_environments::sql::{SqlObservation, dump, guard, has_order, lexer};

fuzz_target!(|statement: &str| {
    let pieces = lexer::tokens(statement).count();
    assert!(pieces <= statement.chars().count());
    let _ = guard::check(statement);
    let _ = has_order(statement);
    let _ = SqlObservation::of_printed(statement).printed();
    let _ = dump::read(statement).count();
});
