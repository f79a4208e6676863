//! Comparisons and gates of recorded runs, end to end.

use std::fs;
use std::path::Path;

use crate::support::{Lumos, lumos};

/// Runs the built-in model on samples of SVAMP, in an output folder.
fn run(folder: &Path, name: &str, more: &str) {
    lumos().args("run --tasks svamp --model builtin:tiny").args(more).output(folder, name).ok();
}

fn within(folder: &Path, command: &str) -> Lumos {
    let (command, rest) = command.split_once(' ').unwrap();
    lumos().args(command).args("--output-path").arg(folder).args(rest)
}

#[test]
fn runs_and_configurations_are_compared() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "full", "--formulation iterative,onetime");
    run(folder, "short", "--max-new-tokens 4");
    // Along the only axis that varies.
    let axis = within(folder, "compare full").ok();
    let axis = axis.prints([
        "SVAMP paper: A = iterative, B = onetime",
        "30 items settled on both sides",
        "exact_match",
    ]);
    assert!(axis.stdout.lines().all(|line| line.chars().count() <= 80), "{}", axis.stdout);
    // Two runs: the second minus the first.
    let json = within(folder, "compare full short --only formulation=iterative --json").ok().json();
    let pair = &json["comparisons"][0];
    let metric = &pair["metrics"][0];
    let number = |name: &str| metric[name].as_f64().unwrap();
    assert!((number("difference") - (number("b") - number("a"))).abs() < 1e-12, "{metric}");
    assert!(number("difference") <= 0.0, "four tokens are not enough: {metric}");
    assert_eq!((&json["a"]["label"], &pair["pair"]["b"]), (&"full".into(), &"short".into()), "{json}");
    assert_eq!(pair["difference_of"], "b - a");
    let (only_a, wrong) = (metric["flips"]["only_a"].as_u64(), pair["newly_wrong"].as_array().unwrap());
    assert_eq!(only_a, Some(wrong.len() as u64), "{pair}");
    let settings: Vec<_> =
        pair["settings"].as_array().unwrap().iter().map(|one| one["setting"].clone()).collect();
    assert!(settings.contains(&"max new tokens".into()), "{settings:?}");
    // Texts of the items are in Markdown, trajectories in JSON on request.
    let file = folder.join("change.md");
    within(
        folder,
        "compare full short --only formulation=iterative --format markdown --label short=brief -o",
    )
    .arg(&file)
    .ok();
    let markdown = fs::read_to_string(&file).unwrap();
    assert!(markdown.contains("A = full, B = brief"), "{markdown}");
    assert_eq!(markdown.contains("lumos show"), !wrong.is_empty(), "{markdown}");
    // The next command writes the page, with both trajectories of every item.
    let table = within(folder, "compare full short --only formulation=iterative").ok();
    let next = table.stdout.lines().find_map(|line| line.strip_prefix("next: lumos ")).unwrap();
    let (next, _) = next.split_once("--output ").unwrap();
    let page = folder.join("comparison");
    lumos().args(next).args("--output").arg(&page).ok();
    let html = fs::read_to_string(page.join("index.html")).unwrap();
    assert!(html.contains("B − A") && html.contains("short compared with full"), "{html}");
    assert!(!super::support::files(&page.join("data"), "", ".js").is_empty(), "trajectories");
    let long =
        within(folder, "compare full short --only formulation=iterative --json --trajectories").ok().json();
    for item in long["comparisons"][0]["newly_wrong"].as_array().unwrap() {
        assert!(item["trajectory_a"][0]["prompt"].is_string() && item["gold"].is_string(), "{item}");
    }
}

#[test]
fn misleading_comparisons_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "first", "--samples 0-3 --max-new-tokens 4");
    run(folder, "next", "--samples 2-5 --max-new-tokens 4");
    let refused = within(folder, "compare first next").exits(2);
    refused.reports([
        "not comparable",
        "svamp: different items: 4 and 4 items, 2 in common",
        "hint: ",
        "--unpaired",
    ]);
    within(folder, "compare first next --unpaired").ok().prints(["warning: svamp: 4 and 4 items"]);
    within(folder, "compare first").exits(2).reports(["nothing to compare", "hint: pass a second run"]);
    within(folder, "compare first first --metric f1")
        .exits(2)
        .reports(["unknown metric `f1`", "exact_match"]);
    within(folder, "compare first next --only colour=red").exits(2).reports(["unknown axis `colour`"]);
    within(folder, "gate first --baseline next").exits(2).reports([
        "different items",
        "hint: run both on the same items, or compare them without a verdict: lumos compare ",
    ]);
}

#[test]
fn gates_pass_fail_or_cannot_tell() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "full", "");
    run(folder, "short", "--max-new-tokens 4");
    run(folder, "few", "--limit 4");
    within(folder, "gate full --baseline full").ok().prints(["pass", "over 30 items"]);
    let baseline = folder.join("baseline.json");
    within(folder, "gate full --save-baseline").arg(&baseline).ok();
    let text = fs::read_to_string(&baseline).unwrap();
    assert!(text.starts_with("{\"format\":\"lumos-baseline/1\"") && text.lines().count() > 30, "{text}");
    within(folder, "gate full --baseline").arg(&baseline).ok().prints(["pass"]);
    within(folder, "gate few --baseline")
        .arg(&baseline)
        .exits(5)
        .prints(["cannot tell", "fewer than 30 items"]);
    // An item that four tokens cannot answer.
    let right = within(folder, "compare full short --json").ok().json();
    let newly_wrong = right["comparisons"][0]["newly_wrong"].as_array().unwrap().clone();
    let item = newly_wrong.first().expect("the built-in model has an item right")["item"].to_string();
    let list = folder.join("must-pass.txt");
    fs::write(&list, format!("# items that users rely on\n\nsvamp:{item}\n")).unwrap();
    let (junit, summary) = (folder.join("gate.xml"), folder.join("summary.md"));
    let failed =
        within(folder, "gate short --margin 90 --min-items 2 --json --annotations always --baseline")
            .arg(&baseline)
            .args("--must-pass")
            .arg(&list)
            .args("--junit")
            .arg(&junit)
            .args("--summary")
            .arg(&summary)
            .exits(100);
    let report = failed.json();
    assert_eq!((&report["verdict"], &report["exit"]), (&"fail".into(), &100.into()), "{report}");
    let last = report["checks"].as_array().unwrap().last().unwrap().clone();
    assert_eq!(
        (last["rule"].as_str(), last["verdict"].as_str()),
        (Some(&*format!("must-pass {item}")), Some("fail"))
    );
    assert!(failed.stderr.starts_with("::error title="), "{failed}");
    let junit = fs::read_to_string(junit).unwrap();
    assert!(junit.contains("<testsuite name=\"svamp\"") && junit.contains("<failure"), "{junit}");
    assert!(
        fs::read_to_string(summary).unwrap().starts_with("## lumos gate: fail"),
        "the summary is Markdown"
    );
    fs::write(&baseline, "{\"format\":\"other/1\"}").unwrap();
    within(folder, "gate full --baseline").arg(&baseline).exits(2).reports(["unknown format `other/1`"]);
    within(folder, "gate full").exits(2).reports(["--baseline"]);
    within(folder, "gate full --baseline full --must-pass svamp:999")
        .exits(2)
        .reports(["item `999` not found"]);
    within(folder, "gate full --baseline full --margin -1")
        .exits(2)
        .reports(["invalid value `-1`: expected the allowed loss"]);
}

#[test]
fn seeds_are_pooled_in_reports() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    run(folder, "seeds", "--limit 4 --seed 0,1 --temperature 0.7 --max-new-tokens 8");
    let report = within(folder, "report seeds --format json").ok().json();
    let group = &report["lumos"]["groups"][0];
    assert_eq!(
        (&group["items"], &group["units"], &group["seeds"]),
        (&4.into(), &8.into(), &2.into()),
        "{group}"
    );
    assert_eq!(report["lumos"]["matrix"]["rows"][0]["cells"][0]["items"], 4);
    let summary = within(folder, "report seeds").ok();
    let row = |line: &&str| line.trim_start().starts_with("svamp iterative");
    assert_eq!(summary.stdout.lines().filter(row).count(), 1, "one row for both seeds: {summary}");
    within(folder, "report seeds -v --label builtin:tiny=Tiny").ok().prints(["Tiny", "n 4 × 2"]);
}

#[test]
fn trajectories_are_coloured_unless_no_color_is_set() {
    let folder = tempfile::tempdir().unwrap();
    run(folder.path(), "one", "--limit 1");
    let show = || within(folder.path(), "show one 0").env("CLICOLOR_FORCE", "1");
    assert!(show().without_env("NO_COLOR").ok().stdout.contains("\u{1b}["));
    let plain = show().env("NO_COLOR", "1").ok().stdout;
    assert!(!plain.contains('\u{1b}') && plain.contains("Subgoal"), "{plain}");
}
