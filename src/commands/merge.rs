//! Not yet.
use crate::cli::MergeArgs;
use crate::exit::{Failure, Outcome};
pub(crate) fn run(arguments: &MergeArgs) -> Outcome {
    Err(Failure::input(format!("{:?} {} {:?}", arguments.parts, arguments.allow_incomplete, arguments.into)))
}
