//! `lumos merge`: one run of its parts.

use crate::cli::MergeArgs;
use crate::exit::{Exit, Failure, Outcome};

pub(crate) fn run(arguments: &MergeArgs) -> Outcome {
    let merged =
        lumos_coordinator::merge::merge(&arguments.parts, &arguments.into, arguments.allow_incomplete)
            .map_err(Failure::usage)?;
    println!(
        "{} parts, {} units, {} of them outstanding, in {}",
        arguments.parts.len(),
        merged.planned,
        merged.outstanding,
        arguments.into.display()
    );
    Ok(if merged.outstanding == 0 { Exit::Complete } else { Exit::Outstanding })
}
