//! `lumos gate`: checks a run against a baseline.

use std::fs::OpenOptions;
use std::io::{self, Read, Write};
use std::path::Path;

use lumos_reports::compare::{CompareError, Refusal};
use lumos_reports::gate::{
    BaselineFile, BaselineSource, GateFormat, GateReport, GateRules, GateVerdict, ItemRef, gate,
};
use lumos_tasks::shell::quoted_path;

use super::compare::{only, open_side, refused, write};
use crate::cli::{Annotations, GateArgs};
use crate::exit::{CommandResult, Exit, Failure};
use crate::table;

/// Longest accepted list of items.
const LONGEST_LIST: u64 = 16 << 20;

/// Checks the run and reports the verdict; with --save-baseline, writes its scores instead.
pub(crate) fn run(arguments: &GateArgs) -> CommandResult {
    let (mut candidate, _) = open_side(&arguments.runs, &arguments.run, &arguments.selection)?;
    candidate.name = arguments.run.display().to_string();
    if let Some(path) = &arguments.save_baseline {
        let baseline = BaselineFile::of(&candidate, &only(&arguments.selection)?).map_err(refused)?;
        write(Some(path), |out| baseline.write(out))?;
        return Ok(Exit::Complete);
    }
    // clap requires one of both options.
    let Some(given) = &arguments.baseline else { return Err(Failure::input("missing --baseline")) };
    let baseline = if given.is_file() {
        BaselineSource::File(BaselineFile::read(given).map_err(Failure::usage)?)
    } else {
        let (mut side, _) = open_side(&arguments.runs, given, &arguments.selection)?;
        side.name = given.display().to_string();
        BaselineSource::Run(Box::new(side))
    };
    let folders = match &baseline {
        BaselineSource::Run(side) => Some([side.folder.as_path(), candidate.folder.as_path()]),
        BaselineSource::File(_) => None,
    };
    let report = gate(&candidate, &baseline, &rules(arguments)?);
    let report = report.map_err(|error| refused_gate(error, folders))?;
    let format = match (arguments.json, arguments.format) {
        (true, _) => GateFormat::Json,
        (false, GateFormat::Terminal { .. }) => GateFormat::Terminal { width: table::width() },
        (false, format) => format,
    };
    write(None, |out| report.render(format, out))?;
    annotate(arguments.annotations, &report, matches!(format, GateFormat::Terminal { .. }))?;
    if let Some(path) = &arguments.junit {
        write(Some(path), |out| report.render(GateFormat::Junit, out))?;
    }
    if let Some(path) = arguments.summary.as_ref().filter(|path| !path.as_os_str().is_empty()) {
        let failed = |error: io::Error| Failure::input(format!("cannot write {}: {error}", path.display()));
        let mut out = OpenOptions::new().create(true).append(true).open(path).map_err(failed)?;
        report.render(GateFormat::Markdown, &mut out).map_err(failed)?;
    }
    Ok(match report.verdict() {
        GateVerdict::Pass => Exit::Complete,
        GateVerdict::Fail => Exit::CheckFailed,
        GateVerdict::CannotTell => Exit::Outstanding,
    })
}

/// Returns the failure of a gate that is refused. Only `compare` compares different items. `folders` are those of the
/// baseline, unless it is a file, and of the candidate.
fn refused_gate(error: CompareError, folders: Option<[&Path; 2]>) -> Failure {
    let items_differ = matches!(error.hinted(), Some(Refusal::ItemsDiffer { .. }));
    let failure = refused(error);
    if !items_differ {
        return failure;
    }
    failure.hint(match folders.map(|folders| folders.map(quoted_path)) {
        Some([baseline, run]) => format!(
            "run both on the same items, or compare them without a verdict: lumos compare {baseline} {run} --unpaired"
        ),
        None => "run both on the same items, and write the baseline again with --save-baseline".to_owned(),
    })
}

fn rules(arguments: &GateArgs) -> Result<GateRules, Failure> {
    let rules = GateRules {
        must_pass: must_pass(&arguments.must_pass)?,
        thresholds: arguments.threshold.clone(),
        metric: arguments.metric.clone(),
        min_items: arguments.min_items,
        allow: arguments.allow.iter().copied().collect(),
        only: only(&arguments.selection)?,
        ..GateRules::default()
    };
    rules.with_margins(&arguments.margin).map_err(Failure::usage)
}

/// Parses items, and the lines of files of items. Blank lines and lines that start with `#` are skipped.
fn must_pass(given: &[String]) -> Result<Vec<ItemRef>, Failure> {
    let mut items = Vec::new();
    for text in given {
        let path = Path::new(text);
        let lines = if path.is_file() { read_list(path)? } else { text.clone() };
        let lines = lines.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#'));
        for line in lines {
            items.push(line.parse::<ItemRef>().map_err(Failure::usage)?);
        }
    }
    Ok(items)
}

fn read_list(path: &Path) -> Result<String, Failure> {
    let failed = |reason: String| Failure::input(format!("cannot read {}: {reason}", path.display()));
    let file = std::fs::File::open(path).map_err(|error| failed(error.to_string()))?;
    let mut text = String::new();
    file.take(LONGEST_LIST + 1).read_to_string(&mut text).map_err(|error| failed(error.to_string()))?;
    if text.len() as u64 > LONGEST_LIST {
        return Err(failed(format!("longer than {} MiB", LONGEST_LIST >> 20)));
    }
    Ok(text)
}

fn annotate(when: Annotations, report: &GateReport, to_stdout: bool) -> io::Result<()> {
    let is_wanted = match when {
        Annotations::Always => true,
        Annotations::Never => false,
        Annotations::Auto => std::env::var("GITHUB_ACTIONS").is_ok_and(|value| value == "true"),
    };
    if !is_wanted {
        return Ok(());
    }
    let mut out: Box<dyn Write> =
        if to_stdout { Box::new(io::stdout().lock()) } else { Box::new(io::stderr().lock()) };
    report.annotate(&mut out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn different_items_have_a_hint_that_the_gate_or_compare_accepts() {
        let items = || Refusal::ItemsDiffer { benchmark: "svamp".to_owned(), a: 4, b: 4, common: 2 };
        let hint = |refusals: Vec<Refusal>, folders: Option<[&Path; 2]>| {
            refused_gate(CompareError::Refused(refusals), folders).hint.unwrap()
        };
        let folders = Some([Path::new("runs/my old"), Path::new("runs/new")]);
        let of_runs = hint(vec![items()], folders);
        assert!(of_runs.ends_with(": lumos compare 'runs/my old' runs/new --unpaired"), "{of_runs}");
        let of_file = hint(vec![items()], None);
        assert!(of_file.ends_with("with --save-baseline") && !of_file.contains("--unpaired"), "{of_file}");
        let data = Refusal::DataDiffers { benchmark: "svamp".to_owned() };
        assert_eq!(hint(vec![data, items()], folders), "accept the difference: --allow data");
    }
}
