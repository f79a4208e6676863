//! `lumos export`: converts a run for other tools.

use lumos_reports::ModelNames;
use lumos_reports::export::{AnnotationOptions, ExportError, ExportOptions, convert};
use lumos_reports::results::Labels;

use super::results::open;
use crate::cli::ExportArgs;
use crate::exit::{CommandResult, Exit, Failure};
use crate::progress::write_line;
use crate::settings;

/// `lumos export`: writes a run in another format to a folder.
pub(crate) fn run(arguments: &ExportArgs) -> CommandResult {
    let (manifest, checkpoint) = open(&arguments.runs.folder(&arguments.run)?)?;
    let options = ExportOptions {
        scorings: settings::scorings(&arguments.scoring)?,
        names: ModelNames {
            id: arguments.model_id.clone(),
            labels: Labels::parse(&arguments.label).map_err(Failure::usage)?,
        },
        annotations: AnnotationOptions {
            wrong: !arguments.correct_only,
            max_turns: arguments.max_turns,
            allow_test: arguments.allow_test,
            module: arguments.module,
        },
        replace: arguments.force,
    };
    let (output, format) = (&arguments.output, arguments.to);
    let now = jiff::Timestamp::now();
    let summary = convert(output, &manifest, &checkpoint, format, &options, now).map_err(failure)?;
    for (reason, count) in &summary.skipped {
        write_line(format_args!("left out: {reason}: {count}"));
    }
    if let Some(warning) = summary.warning {
        write_line(format_args!("warning: {warning}"));
    }
    for file in &summary.files {
        println!("{}", file.display());
    }
    write_line(format_args!("exported {} {} to {}", summary.rows, format.rows, output.display()));
    Ok(Exit::Complete)
}

fn failure(error: ExportError) -> Failure {
    match &error {
        ExportError::NotEmpty(_) => {
            Failure::usage(error).hint("choose another folder, or replace an earlier export with --force")
        }
        ExportError::NotAnExport(_) => Failure::usage(error).hint("choose another folder with --output PATH"),
        ExportError::NotBuilt(feature) => {
            let hint = format!("build it with `cargo build --release --features {feature}`");
            Failure::usage(error).hint(hint)
        }
        ExportError::Nothing(_) => Failure { exit: Exit::NothingSelected, error: error.into(), hint: None },
        ExportError::OnlyTestItems(_) => {
            let failure = Failure { exit: Exit::NothingSelected, error: error.into(), hint: None };
            failure.hint("pass --allow-test to export test-set items; do not train on them. Own data is exported if its task file has `training = true` in [data]")
        }
        ExportError::Score(_) | ExportError::Io { .. } => error.into(),
    }
}
