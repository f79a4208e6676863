//! Tests of gates on sample records.

use lumos_coordinator::samples::configuration;
use lumos_tasks::outcome::{SqlEvidence, SqlTry};
use lumos_tasks::{Configuration, ContentHash, Evidence, Formulation, Item, Outcome, Task};

use super::*;
use crate::compare::tests::{items, side};
use crate::compare::{CompareError, Refusal, Side};
use crate::results::SettingsAxis;
use crate::results::tests::{like, table_of};

fn run(name: &str, count: u64, right: impl Fn(u64) -> bool) -> Side {
    side(name, &[configuration(0)], &items(0..count), |_, index| right(index / 10 * 8 + index % 10))
}

fn rules() -> GateRules {
    GateRules { min_items: 30, ..GateRules::default() }
}

/// Checks against the run, and against its file, which must give the same result.
fn checked(candidate: &Side, baseline: Side, rules: &GateRules) -> GateReport {
    let mut bytes = Vec::new();
    let taken = BaselineFile::of(&baseline, &rules.only).unwrap();
    taken.write(&mut bytes).unwrap();
    let file = BaselineFile::parse(&bytes).unwrap();
    assert_eq!(file, taken);
    let of_file = gate(candidate, &BaselineSource::File(file), rules).unwrap();
    let of_run = gate(candidate, &BaselineSource::Run(Box::new(baseline)), rules).unwrap();
    assert_eq!(of_file.checks, of_run.checks);
    of_run
}

/// The cases of `stat_cases.json`: ten patterns of ten items, nothing that differs, and half of 40 items lost.
#[test]
fn known_cases_have_their_verdicts() {
    let candidate = |index: u64| [1, 1, 0, 1, 0, 1, 1, 0, 1, 1][index as usize % 10] == 1;
    let baseline = |index: u64| [1, 0, 0, 1, 0, 1, 1, 1, 1, 1][index as usize % 10] == 1;
    let margin = |points: &str| rules().with_margins(&[points]).unwrap();
    let report = checked(&run("new", 100, candidate), run("old", 100, baseline), &margin("5"));
    let check = &report.checks[0];
    assert_eq!((report.verdict(), check.items, check.difference), (GateVerdict::CannotTell, 100, Some(0.0)));
    assert!((check.limit.unwrap() + 0.073_930_672_604_189_83).abs() < 1e-9, "{check:?}");
    assert!(check.items_needed.unwrap() > 100, "{check:?}");
    let report = checked(&run("new", 100, candidate), run("old", 100, candidate), &margin("1"));
    assert_eq!((report.verdict(), report.checks[0].limit), (GateVerdict::Pass, Some(0.0)));
    assert!(report.checks[0].reason.contains("no paired item differs"));
    let report = checked(&run("new", 40, |index| index % 2 == 1), run("old", 40, |_| true), &margin("10"));
    let check = &report.checks[0];
    assert_eq!((report.verdict(), check.difference), (GateVerdict::Fail, Some(-0.5)));
    assert!(
        (check.limit.unwrap() + 0.631_693_687_281_670_4).abs() < 1e-9 && check.p_adjusted.unwrap() < 0.001
    );
}

#[test]
fn few_items_and_unsettled_units_decide_nothing() {
    let same = |name: &str, count| run(name, count, |_| true);
    let report = checked(&same("new", 20), same("old", 20), &rules());
    assert_eq!(report.verdict(), GateVerdict::CannotTell);
    assert!(report.checks[0].reason.contains("fewer than 30 items"), "{:?}", report.checks);
    let all = items(0..200);
    let missing = |count: u64| {
        let table =
            table_of(
                &[configuration(0)],
                &all,
                move |_, item, _| {
                    if item.index < count { None } else { like(0, item) }
                },
            );
        Side { name: "run".to_owned(), folder: "run".into(), table }
    };
    assert_eq!(missing(8).table.unsettled(), 8);
    let report = checked(&missing(8), missing(0), &rules());
    assert_eq!(report.verdict(), GateVerdict::CannotTell);
    assert!(report.checks[0].reason.contains("8 units are faulted or outstanding and could reverse it"));
    let rules = rules().with_margins(&["20"]).unwrap();
    let report = checked(&missing(8), missing(0), &rules);
    assert_eq!(report.verdict(), GateVerdict::Pass, "even if all of them are wrong");
    let threshold = |text: &str| {
        let rules = GateRules { thresholds: vec![text.parse().unwrap()], ..rules.clone() };
        checked(&missing(8), missing(0), &rules).checks.remove(1)
    };
    // At least 96 % are right.
    assert_eq!(threshold("exact_match=80").verdict, GateVerdict::Pass, "even if all of them are wrong");
    let check = threshold("exact_match=95");
    assert_eq!(check.verdict, GateVerdict::CannotTell, "{check:?}");
    assert!(check.reason.contains("8 units are faulted or outstanding and could reverse it"), "{check:?}");
}

#[test]
fn missing_seeds_do_not_change_the_weight_of_an_item() {
    let all = items(0..40);
    // With `faults`, wrong items have no outcome in the second seed.
    let run = |name: &str, faults: bool| {
        let table = table_of(&[configuration(0), configuration(1)], &all, |cell, item, _| {
            let is_right = item.index.is_multiple_of(2);
            if faults && cell == 1 && !is_right { None } else { like(if is_right { 0 } else { 9 }, item) }
        });
        Side { name: name.to_owned(), folder: name.into(), table }
    };
    for faults in [false, true] {
        let report = checked(&run("new", faults), run("old", !faults), &rules());
        let check = &report.checks[0];
        assert_eq!((check.verdict, check.difference), (GateVerdict::Pass, Some(0.0)), "{check:?}");
        assert!(check.reason.contains("no paired item differs"), "{check:?}");
    }
}

#[test]
fn configurations_with_fewer_items_than_the_baseline_are_reported() {
    let cells = [configuration(0), Configuration { formulation: Formulation::OneTime, ..configuration(0) }];
    let run = |name: &str, count: usize| {
        let mut run = side(name, &cells, &items(0..40), |_, _| true);
        run.table.cells[1].rows.truncate(count);
        run
    };
    let report = checked(&run("new", 35), run("old", 40), &rules());
    assert_eq!((report.verdict(), report.checks[1].items), (GateVerdict::Pass, 35));
    let [warning] = report.warnings.as_slice() else { panic!("{report:?}") };
    assert!(
        warning.contains("35 items of the run and 40 of the baseline, 35 in common; 35 are compared"),
        "{warning}"
    );
}

#[test]
fn items_and_thresholds_are_required() {
    let candidate = run("new", 40, |index| index != 3);
    let with = |item: &str| GateRules {
        must_pass: vec![item.parse().unwrap()],
        ..rules().with_margins(&["20"]).unwrap()
    };
    let verdict = |rules: &GateRules| {
        let report = checked(&candidate, run("old", 40, |_| true), rules);
        report.checks.last().unwrap().verdict
    };
    assert_eq!((verdict(&with("2")), verdict(&with("svamp:3"))), (GateVerdict::Pass, GateVerdict::Fail));
    assert_eq!(verdict(&with("item-3")), GateVerdict::Fail);
    let error = gate(&candidate, &BaselineSource::Run(Box::new(run("old", 40, |_| true))), &with("item-77"))
        .unwrap_err();
    assert!(error.to_string().contains("item `item-77` not found"), "{error}");
    let threshold = |text: &str| GateRules {
        thresholds: vec![text.parse().unwrap()],
        ..rules().with_margins(&["20"]).unwrap()
    };
    assert_eq!(verdict(&threshold("exact_match=80")), GateVerdict::Pass);
    assert_eq!(verdict(&threshold("svamp:exact_match=97")), GateVerdict::CannotTell);
    assert_eq!(verdict(&threshold("exact_match=99.9")), GateVerdict::Fail);
    let error =
        gate(&candidate, &BaselineSource::Run(Box::new(run("old", 40, |_| true))), &threshold("f1=1"))
            .unwrap_err();
    assert!(matches!(error, CompareError::UnknownMetric(_)), "{error}");
}

#[test]
fn differences_in_prompts_data_and_items_are_refused() {
    let baseline = || run("old", 40, |_| true);
    let refused = |candidate: &Side, rules: &GateRules| match gate(
        candidate,
        &BaselineSource::Run(Box::new(baseline())),
        rules,
    ) {
        Err(CompareError::Refused(refusals)) => refusals,
        other => panic!("{other:?}"),
    };
    let prompts = Configuration { prompts: ContentHash::of_bytes(b"other"), ..configuration(0) };
    let candidate = side("new", &[prompts], &items(0..40), |_, _| true);
    assert!(matches!(refused(&candidate, &rules())[..], [Refusal::PromptsDiffer { .. }]));
    let allowed = GateRules { allow: [AllowedDifference::Prompts].into(), ..rules() };
    assert!(gate(&candidate, &BaselineSource::Run(Box::new(baseline())), &allowed).is_ok());
    let mut candidate = run("new", 40, |_| true);
    candidate.table.manifest.data[0].sha256 = ContentHash::of_bytes(b"other");
    assert!(matches!(refused(&candidate, &rules())[..], [Refusal::DataDiffers { .. }]));
    let shifted = side("new", &[configuration(0)], &items(8..48), |_, _| true);
    let [Refusal::ItemsDiffer { common: 32, .. }] = refused(&shifted, &rules())[..] else { panic!() };
    let mut file = BaselineFile::of(&baseline(), &[]).unwrap();
    file.scoring_version += 1.0;
    let refused = gate(&run("new", 40, |_| true), &BaselineSource::File(file), &rules()).unwrap_err();
    assert!(matches!(refused, CompareError::Refused(_)), "another version of the scoring");
    assert_eq!(refused.hint().as_deref(), Some("write the baseline again with --save-baseline"));
}

#[test]
fn damaged_baselines_are_refused() {
    let mut bytes = Vec::new();
    BaselineFile::of(&run("old", 8, |_| true), &[]).unwrap().write(&mut bytes).unwrap();
    let text = String::from_utf8(bytes).unwrap();
    let lines = text.lines().filter(|line| line.starts_with("[\"")).count();
    assert_eq!(lines, 8, "one line per item: {text}");
    let refused = |text: String| BaselineFile::parse(text.as_bytes()).unwrap_err();
    assert!(refused(text.replace("baseline/1", "baseline/2")).contains("unknown format `lumos-baseline/2`"));
    assert!(refused(text[..text.len() / 2].to_owned()).contains("not a baseline file"));
    assert!(refused("{}".to_owned()).contains("format"));
    assert!(refused(text.replacen("[[1.0,1.0]]", "[]", 1)).contains("0 values for 1 metrics"));
    assert!(refused(text.replacen("[[1.0,1.0]]", "[[1.0,-1.0]]", 1)).contains("invalid value"));
    let first = text.lines().find(|line| line.starts_with("[\"")).unwrap();
    assert!(refused(text.replacen(first, &format!("{first}\n{first}"), 1)).contains("listed twice"));
    let missing = BaselineFile::read(std::path::Path::new("/nowhere/baseline.json")).unwrap_err();
    assert!(missing.to_string().contains("/nowhere/baseline.json"), "{missing}");
}

#[test]
fn every_format_has_the_verdicts() {
    let report = gate(
        &run("new", 40, |index| index % 2 == 1),
        &BaselineSource::Run(Box::new(run("old", 40, |_| true))),
        &GateRules { must_pass: vec!["1".parse().unwrap()], ..rules() },
    )
    .unwrap();
    let rendered = |format| {
        let mut out = Vec::new();
        report.render(format, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    insta::assert_snapshot!("table", rendered(GateFormat::Terminal { width: 80 }));
    insta::assert_snapshot!("junit", rendered(GateFormat::Junit));
    let json: serde_json::Value = serde_json::from_str(&rendered(GateFormat::Json)).unwrap();
    assert_eq!((&json["verdict"], &json["exit"]), (&"fail".into(), &100.into()), "{json}");
    for key in
        ["rule", "benchmark", "group", "verdict", "difference", "interval", "p_value", "margin", "items"]
    {
        assert!(!json["checks"][0][key].is_null(), "{key}: {json}");
    }
    let markdown = rendered(GateFormat::Markdown);
    assert!(markdown.contains("fail") && markdown.contains("compare runs/old runs/new`"), "{markdown}");
    let mut annotations = Vec::new();
    report.annotate(&mut annotations).unwrap();
    let annotations = String::from_utf8(annotations).unwrap();
    assert!(annotations.starts_with("::error title=lumos gate%3A svamp"), "{annotations}");
    assert_eq!(annotations.lines().count(), 1, "passed checks have none");
}

#[test]
fn changed_items_are_found_with_a_command_unless_the_baseline_is_a_file() {
    let candidate = run("new_*", 40, |index| index % 2 == 1);
    let baseline = run("my old_run", 40, |_| true);
    let file = BaselineFile::of(&baseline, &[]).unwrap();
    let report = |baseline: BaselineSource| gate(&candidate, &baseline, &rules()).unwrap();
    let markdown = |report: &GateReport| {
        let mut out = Vec::new();
        report.render(GateFormat::Markdown, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    };
    let of_file = markdown(&report(BaselineSource::File(file)));
    assert!(of_file.contains("fail") && !of_file.contains("lumos compare"), "{of_file}");
    let report = report(BaselineSource::Run(Box::new(baseline)));
    let warned = GateReport { warnings: vec!["few items".to_owned()], ..report.clone() };
    let command = "\n\nItems that changed: `lumos compare 'runs/my old_run' 'runs/new_*'`\n";
    for (report, before) in [(report, " |"), (warned, "- **Warning:** few items")] {
        let of_run = markdown(&report);
        assert!(of_run.ends_with(&format!("{before}{command}")), "{of_run}");
    }
}

#[test]
fn items_outside_a_configuration_are_not_correct() {
    let cells = [configuration(0), Configuration { formulation: Formulation::OneTime, ..configuration(0) }];
    let run = |name: &str| {
        let mut run = side(name, &cells, &items(0..40), |_, _| true);
        run.table.cells[1].rows.truncate(35);
        run
    };
    let rules = GateRules { must_pass: vec!["item-46".parse().unwrap()], ..rules() };
    let report = checked(&run("new"), run("old"), &rules);
    let [.., inside, outside] = report.checks.as_slice() else { panic!("{report:?}") };
    assert_eq!((inside.verdict, outside.verdict), (GateVerdict::Pass, GateVerdict::CannotTell));
    assert_eq!(outside.reason, "not part of this configuration");
}

/// Returns a run of InterCode SQL whose episodes have this evidence.
fn sql(name: &str, items: &[Item], evidence: impl Fn(u64) -> SqlEvidence) -> Side {
    let configuration = Configuration { benchmark: "intercode_sql".to_owned(), ..configuration(0) };
    let mut table = table_of(&[configuration], items, |_, item, sample| {
        Some(Outcome { evidence: Some(Evidence::Sql(evidence(item.index))), ..sample? })
    });
    "intercode_sql".clone_into(&mut table.manifest.data[0].benchmark);
    Side { name: name.to_owned(), folder: name.into(), table }
}

/// Returns a run of InterCode SQL whose episodes take this many turns.
fn turns(name: &str, taken: impl Fn(u64) -> u32) -> Side {
    sql(name, &items(0..40), |index| SqlEvidence { turns: taken(index), ..SqlEvidence::default() })
}

/// Returns a run of InterCode SQL over this many questions, which are about each of some databases in turn.
fn databases(name: &str, count: u64, databases: u64, right: impl Fn(u64) -> bool) -> Side {
    let mut items = items(0..count);
    for (number, item) in (0..).zip(&mut items) {
        let database = format!("database-{}", number % databases);
        item.task = Task::Sql { question: "How many?".to_owned(), database };
    }
    sql(name, &items, |index| {
        let reward = if right(index / 10 * 8 + index % 10) { 1.0 } else { 0.0 };
        let tried =
            SqlTry { action: String::new(), observation: String::new(), executed: true, reward, grade: None };
        SqlEvidence { tries: vec![tried], ..SqlEvidence::default() }
    })
}

#[test]
fn few_clusters_are_little_evidence() {
    let check = |candidate: Side, baseline: Side| checked(&candidate, baseline, &rules()).checks.remove(0);
    // One question of each database is newly wrong: the differences of the databases are equal.
    let wrong = check(databases("new", 60, 3, |number| number >= 3), databases("old", 60, 3, |_| true));
    assert_eq!((wrong.verdict, wrong.items), (GateVerdict::CannotTell, 60), "{wrong:?}");
    assert!((wrong.difference.unwrap() + 0.05).abs() < 1e-12 && wrong.p_adjusted.unwrap() > 0.15);
    assert!(wrong.reason.contains("over 60 items in 3 clusters"), "{wrong:?}");
    // One question of a database is newly wrong and another one newly right.
    let both =
        check(databases("new", 90, 3, |number| number != 0), databases("old", 90, 3, |number| number != 3));
    assert_eq!((both.verdict, both.difference), (GateVerdict::CannotTell, Some(0.0)), "{both:?}");
    assert!(!both.reason.contains("no paired item differs"), "{both:?}");
    let same = check(databases("new", 60, 3, |_| true), databases("old", 60, 3, |_| true));
    assert_eq!(same.verdict, GateVerdict::Pass);
    assert!(same.reason.contains("no paired item differs"), "{same:?}");
    let one = check(databases("new", 60, 1, |_| true), databases("old", 60, 1, |_| true));
    assert_eq!(one.verdict, GateVerdict::CannotTell);
    assert!(one.reason.contains("in one cluster"), "{one:?}");
}

#[test]
fn fewer_turns_are_better() {
    let with = |threshold: &str| GateRules {
        metric: Some("turns".to_owned()),
        thresholds: vec![threshold.parse().unwrap()],
        ..rules()
    };
    let verdicts = |candidate: u32, baseline: u32, threshold: &str| {
        let candidate = turns("new", |index| candidate + u32::from(index.is_multiple_of(2)));
        let report = checked(&candidate, turns("old", |_| baseline), &with(threshold));
        let difference = report.checks[0].difference.unwrap();
        (report.checks[0].verdict, difference, report.checks[1].verdict)
    };
    assert_eq!(verdicts(4, 8, "turns=5"), (GateVerdict::Pass, -3.5, GateVerdict::Pass));
    assert_eq!(verdicts(8, 4, "turns=5"), (GateVerdict::Fail, 4.5, GateVerdict::Fail));
    // Half a turn more than the baseline is within the margin of two turns.
    assert_eq!(verdicts(4, 4, "turns=4.5"), (GateVerdict::Pass, 0.5, GateVerdict::CannotTell));
}

#[test]
fn only_keeps_seeds_of_the_run_and_of_the_baseline() {
    let seeds = [0, 1, 2].map(configuration);
    let run = |name: &str, wrong: usize| side(name, &seeds, &items(0..40), move |cell, _| cell != wrong);
    let only = |seed: &str| vec![(SettingsAxis::Seed, seed.to_owned())];
    let difference = |seed: &str| {
        let rules = GateRules { only: only(seed), ..rules() };
        checked(&run("new", 0), run("old", 2), &rules).checks[0].difference
    };
    assert_eq!(["0", "1", "2"].map(difference), [Some(-1.0), Some(0.0), Some(1.0)]);
    let file = BaselineFile::of(&run("old", 2), &only("1")).unwrap();
    assert_eq!((file.groups.len(), file.groups[0].head.seeds), (1, 1));
    let unknown = BaselineFile::of(&run("old", 2), &only("3")).unwrap_err().to_string();
    assert_eq!(unknown, "run old has no configuration with seed `3`: expected one of 0, 1, 2");
    let rules = GateRules { only: only("3"), ..rules() };
    let error = gate(&run("new", 0), &BaselineSource::File(file), &rules).unwrap_err();
    assert!(matches!(error, CompareError::UnknownValue { .. }), "{error}");
}

#[test]
fn several_groups_make_failing_harder_and_passing_no_easier() {
    let one = [configuration(0)];
    let two = [configuration(0), Configuration { formulation: Formulation::OneTime, ..configuration(0) }];
    let check = |cells: &[Configuration]| {
        let candidate =
            side("new", cells, &items(0..40), |cell, index| cell == 1 || !index.is_multiple_of(4));
        let baseline = side("old", cells, &items(0..40), |_, _| true);
        gate(&candidate, &BaselineSource::Run(Box::new(baseline)), &rules()).unwrap().checks
    };
    let (alone, both) = (check(&one), check(&two));
    let p = |checks: &[GateCheck]| checks[0].p_adjusted.unwrap();
    assert!((p(&both) - 2.0 * p(&alone)).abs() < 1e-12, "{both:?}");
    assert_eq!(both[1].verdict, GateVerdict::Pass);
}
