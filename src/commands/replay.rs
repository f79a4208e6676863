//! `lumos replay`: runs recorded cases with the current code and compares the results.

use std::io::{self, Write};

use lumos_benchmarks::replay::{self, ReplayResult};
use serde_json::json;

use crate::cli::ReplayArgs;
use crate::exit::{CommandResult, Exit, Failure};

pub(crate) fn run(arguments: &ReplayArgs) -> CommandResult {
    let mut out = io::stdout().lock();
    let (mut passed, mut failed, mut skipped) = (0u64, 0u64, 0u64);
    for file in &arguments.files {
        for recorded in replay::read_cases(file).map_err(Failure::usage)? {
            let verdict = recorded.map_err(Failure::usage)?.replay();
            print(&mut out, &verdict, arguments.json)?;
            match &verdict {
                ReplayResult { skipped: Some(_), .. } => skipped += 1,
                ReplayResult { difference: Some(_), .. } => failed += 1,
                ReplayResult { .. } => passed += 1,
            }
        }
    }
    if !arguments.json {
        let skipped = if skipped > 0 { format!(", {skipped} skipped") } else { String::new() };
        writeln!(out, "{passed} passed, {failed} failed{skipped}")?;
    }
    Ok(if failed > 0 { Exit::CheckFailed } else { Exit::Complete })
}

fn print(out: &mut impl Write, verdict: &ReplayResult, json: bool) -> io::Result<()> {
    let ReplayResult { id, difference, skipped } = verdict;
    if json {
        let mut object = json!({ "id": id, "passed": verdict.passed(), "difference": difference });
        if let Some(reason) = skipped {
            object["skipped"] = reason.as_str().into();
        }
        writeln!(out, "{object}")?;
    } else if let Some(difference) = difference {
        writeln!(out, "{id}: {difference}")?;
    }
    Ok(())
}
