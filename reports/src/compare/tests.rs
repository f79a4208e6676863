//! Tests of whole comparisons on sample records.

use lumos_benchmarks::Scoring;
use lumos_coordinator::samples::{configuration, item};
use lumos_tasks::{Behaviour, Configuration, Formulation, Item, Outcome, Role, Step, ToolBackend};

use super::*;
use crate::results::tests::{add_named, like, table_of};

/// Returns a run of these configurations over items, where cell `c` has the items right of which `right(c, index)`
/// holds.
pub(crate) fn side(
    name: &str,
    configurations: &[Configuration],
    items: &[Item],
    right: impl Fn(usize, u64) -> bool,
) -> Side {
    let table = table_of(configurations, items, |cell, item, _| {
        like(if right(cell, item.index) { 0 } else { 9 }, item)
    });
    Side { name: name.to_owned(), folder: PathBuf::from("runs").join(name), table }
}

pub(crate) fn items(range: std::ops::Range<u64>) -> Vec<Item> {
    // Item 9 of every ten is outstanding in the samples and is left out.
    range.map(|index| item(index / 8 * 10 + index % 8)).collect()
}

fn with(formulation: Formulation, behaviour: Behaviour) -> Configuration {
    Configuration { formulation, behaviour, ..configuration(0) }
}

fn refusals(sides: &[Side], options: &CompareOptions) -> Vec<Refusal> {
    match compare(sides, options) {
        Err(CompareError::Refused(refusals)) => refusals,
        other => panic!("{other:?}"),
    }
}

fn texts() -> FlipTexts {
    FlipTexts {
        task: "Add.".to_owned(),
        gold: "5".to_owned(),
        prediction_a: None,
        prediction_b: None,
        trajectory_a: None,
        trajectory_b: None,
    }
}

fn rendered(comparison: &Comparison, format: CompareFormat) -> String {
    let mut out = Vec::new();
    comparison.render(format, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn a_run_does_not_differ_from_itself() {
    let make = || side("a", &[configuration(0)], &items(0..40), |_, index| index.is_multiple_of(3));
    let comparison = compare(&[make(), make()], &CompareOptions::default()).unwrap();
    let pair = &comparison.comparisons[0];
    let metric = &pair.metrics[0];
    assert_eq!((metric.difference, metric.p_value, metric.p_adjusted), (0.0, 1.0, 1.0));
    assert!(pair.newly_wrong.is_empty() && pair.newly_right.is_empty() && pair.settings.is_empty());
    assert!(pair.otherwise_different.is_empty());
    assert_eq!(pair.not_compared, NotCompared::default());
    assert!(comparison.warnings[0].contains("the same configuration"), "{:?}", comparison.warnings);
}

#[test]
fn items_with_the_same_result_that_differ_otherwise_are_listed() {
    let items = items(0..40);
    let run = |name: &str, more: u32| {
        let table = table_of(&[configuration(0)], &items, |_, item, _| {
            let mut outcome = like(9, item)?;
            let step = outcome.steps.iter_mut().find(|_| item.index == items[2].index);
            if let Some(Step::Generate { prompt_tokens, .. }) = step {
                *prompt_tokens = Some(1000 + more);
            }
            Some(outcome)
        });
        Side { name: name.to_owned(), folder: PathBuf::from("runs").join(name), table }
    };
    let comparison = compare(&[run("a", 0), run("b", 1)], &CompareOptions::default()).unwrap();
    let pair = &comparison.comparisons[0];
    assert!(pair.newly_wrong.is_empty() && pair.newly_right.is_empty());
    let listed: Vec<u64> = pair.otherwise_different.iter().map(|one| one.item).collect();
    assert_eq!(listed, [items[2].index]);
    let table = rendered(&comparison, CompareFormat::Terminal { width: 80 });
    assert!(table.contains("another cause, number of turns or of tokens: 1"), "{table}");
}

#[test]
fn swapping_the_runs_mirrors_the_comparison() {
    let before = || side("before", &[configuration(0)], &items(0..40), |_, index| index.is_multiple_of(3));
    let after = || side("after", &[configuration(1)], &items(0..40), |_, index| index.is_multiple_of(4));
    let forwards = compare(&[before(), after()], &CompareOptions::default()).unwrap();
    let backwards = compare(&[after(), before()], &CompareOptions::default()).unwrap();
    let (first, second) = (&forwards.comparisons[0], &backwards.comparisons[0]);
    let (one, other) = (&first.metrics[0], &second.metrics[0]);
    assert_eq!((one.a, one.b, one.difference), (other.b, other.a, -other.difference));
    assert!(one.difference < 0.0, "b − a: the second run has fewer items right");
    assert_eq!((one.p_value, one.interval.0), (other.p_value, -other.interval.1));
    let ids = |items: &[FlippedItem]| items.iter().map(|one| one.item).collect::<Vec<_>>();
    assert_eq!(ids(&first.newly_wrong), ids(&second.newly_right));
    assert_eq!(first.newly_wrong.len() as u64, one.flips.unwrap().only_a);
    assert_eq!(first.settings.iter().map(|one| one.setting.as_str()).collect::<Vec<_>>(), ["seeds"]);
}

#[test]
fn runs_in_different_behaviours_are_matched_by_formulation() {
    let make = |name, behaviour| {
        let formulations = [Formulation::Iterative, Formulation::OneTime];
        side(name, &formulations.map(|one| with(one, behaviour)), &items(0..40), |cell, index| {
            index.is_multiple_of(3 + cell as u64)
        })
    };
    let sides = [make("paper", Behaviour::Paper), make("corrected", Behaviour::Corrected)];
    let comparison = compare(&sides, &CompareOptions::default()).unwrap();
    assert_eq!(comparison.comparisons.len(), 2);
    for pair in &comparison.comparisons {
        assert_eq!(pair.metrics[0].difference, 0.0, "the same formulation on both sides");
        assert!(pair.settings.iter().any(|one| one.setting == "behaviour"), "{:?}", pair.settings);
    }
}

#[test]
fn items_are_paired_by_content_and_not_by_position() {
    let (all, later) = (items(0..40), items(8..40));
    let right = |_: usize, index: u64| index.is_multiple_of(3);
    let sides =
        [side("all", &[configuration(0)], &all, right), side("later", &[configuration(0)], &later, right)];
    let comparison = compare(&sides, &CompareOptions::default()).unwrap();
    let pair = &comparison.comparisons[0];
    assert_eq!((pair.items, pair.not_compared.a_only, pair.metrics[0].difference), (32, 8, 0.0));
    assert!(
        comparison.warnings.iter().any(|one| one.contains("40 and 32 items, 32 in common; 32 are compared"))
    );
}

#[test]
fn changed_items_have_their_positions_in_both_runs() {
    let before = items(0..40);
    let after: Vec<Item> =
        before.iter().map(|item| Item { index: item.index + 100, ..item.clone() }).collect();
    let sides = [
        side("before", &[configuration(0)], &before, |_, _| true),
        side("my after", &[configuration(0)], &after, |_, index| index != 103),
    ];
    let mut comparison = compare(&sides, &CompareOptions::default()).unwrap();
    let [changed] = comparison.comparisons[0].newly_wrong.as_mut_slice() else { panic!() };
    assert_eq!((changed.item, changed.item_b), (3, 103));
    changed.texts = Some(texts());
    let markdown = rendered(&comparison, CompareFormat::Markdown);
    assert!(markdown.contains("item 3 "), "{markdown}");
    assert!(markdown.contains("`lumos show 'runs/my after' 103 --task svamp`"), "{markdown}");
}

#[test]
fn commands_have_the_names_of_changed_items_if_names_may_be_numbers() {
    // The name of each item is the position of the next one.
    let name = |item: Item| Item { name: Some((item.index + 1).to_string()), ..item };
    let items: Vec<Item> = items(0..40).into_iter().map(name).collect();
    let mut sides = [
        side("before", &[configuration(0)], &items, |_, _| true),
        side("after", &[configuration(0)], &items, |_, index| index != 3),
    ];
    let argument = |sides: &[Side]| {
        let comparison = compare(sides, &CompareOptions::default()).unwrap();
        comparison.comparisons[0].newly_wrong[0].argument_b.clone()
    };
    assert_eq!(argument(&sides), "3");
    add_named(&mut sides[1].table.manifest, "svamp");
    assert_eq!(argument(&sides), "4");
}

#[test]
fn one_blank_line_separates_the_parts_of_a_pair_with_and_without_notes() {
    let cells = |behaviour| [Formulation::Iterative, Formulation::OneTime].map(|one| with(one, behaviour));
    let sides = [
        side("before", &cells(Behaviour::Paper), &items(0..40), |_, index| index.is_multiple_of(3)),
        side("after", &cells(Behaviour::Corrected), &items(0..40), |_, index| index.is_multiple_of(4)),
    ];
    let mut comparison = compare(&sides, &CompareOptions::default()).unwrap();
    for pair in &mut comparison.comparisons {
        for changed in pair.newly_wrong.iter_mut().chain(&mut pair.newly_right) {
            changed.texts = Some(texts());
        }
    }
    let mut without_notes = comparison.clone();
    for metric in without_notes.comparisons.iter_mut().flat_map(|pair| pair.metrics.iter_mut()) {
        (metric.flips, metric.items_needed, metric.bounds) = (None, None, None);
    }
    for (comparison, has_notes) in [(comparison, true), (without_notes, false)] {
        let markdown = rendered(&comparison, CompareFormat::Markdown);
        assert_eq!(markdown.contains("right in both"), has_notes, "{markdown}");
        let headings = |level: &str| markdown.lines().filter(|line| line.starts_with(level)).count();
        assert_eq!((headings("## "), headings("### ")), (2, 6), "{markdown}");
        assert_eq!(markdown.matches("\n\n##").count(), 8, "{markdown}");
        assert!(!markdown.contains("\n\n\n"), "{markdown}");
    }
}

#[test]
fn occurrences_of_a_record_are_paired_in_order() {
    let mut twice = items(0..8);
    twice.push(Item { id: lumos_tasks::ItemId { occurrence: 1, ..twice[0].id.clone() }, ..twice[0].clone() });
    let side = side("twice", &[configuration(0)], &twice, |_, _| true);
    let items = &side.table.benchmarks[0];
    let pairs = sides::pair_items((items, 9), (items, 9));
    assert_eq!(pairs.pairs.last(), Some(&(8, 8)));
    assert_eq!((pairs.pairs.len(), pairs.only_a, pairs.only_b), (9, 0, 0));
    // Configurations with fewer items than their benchmark.
    let pairs = sides::pair_items((items, 9), (items, 5));
    assert_eq!((pairs.pairs.len(), pairs.only_a, pairs.only_b), (5, 4, 0));
}

#[test]
fn misleading_comparisons_are_refused() {
    let run =
        |name: &str, cell: Configuration, items: &[Item]| side(name, &[cell], items, |_, index| index > 3);
    let default = CompareOptions::default();
    let overlap = [run("a", configuration(0), &items(0..24)), run("b", configuration(0), &items(8..32))];
    let [Refusal::ItemsDiffer { a: 24, b: 24, common: 16, .. }] = refusals(&overlap, &default)[..] else {
        panic!()
    };
    let disjoint = [run("a", configuration(0), &items(0..8)), run("b", configuration(0), &items(8..16))];
    let refused = compare(&disjoint, &default).unwrap_err();
    assert!(refused.to_string().contains("8 and 8 items, 0 in common"), "{refused}");
    assert!(refused.hint().unwrap().contains("--unpaired"));
    let tools =
        vec![ToolBackend { tool: "wiki".to_owned(), backend: "corpus:x#0+items".to_owned(), version: 1 }];
    let informed = Configuration { tools, ..configuration(0) };
    let sides = [run("a", configuration(0), &items(0..8)), run("b", informed, &items(0..8))];
    assert!(matches!(refusals(&sides, &default)[..], [Refusal::AnswersFromItems { .. }]));
    let unknown = CompareOptions { metric: Some("f1".to_owned()), ..CompareOptions::default() };
    let sides = [run("a", configuration(0), &items(0..8)), run("b", configuration(1), &items(0..8))];
    let Err(CompareError::UnknownMetric(error)) = compare(&sides, &unknown) else { panic!() };
    assert!(error.to_string().contains("exact_match"), "{error}");
}

#[test]
fn different_items_are_compared_without_pairing_on_request() {
    let options = CompareOptions { unpaired: true, ..CompareOptions::default() };
    let sides = [
        side("a", &[configuration(0)], &items(0..40), |_, index| index.is_multiple_of(4)),
        side("b", &[configuration(0)], &items(40..80), |_, index| index.is_multiple_of(2)),
    ];
    let comparison = compare(&sides, &options).unwrap();
    let (pair, metric) = (&comparison.comparisons[0], &comparison.comparisons[0].metrics[0]);
    assert!(!pair.paired && metric.difference > 0.0 && metric.flips.is_none(), "{metric:?}");
    assert_eq!((metric.interval_method, metric.test), ("newcombe", "newcombe"));
    assert!(comparison.warnings.iter().any(|one| one.contains("without pairing")));
}

#[test]
fn configurations_of_one_run_are_compared_along_an_axis() {
    let cells = [
        with(Formulation::Iterative, Behaviour::Paper),
        with(Formulation::OneTime, Behaviour::Paper),
        with(Formulation::Iterative, Behaviour::Corrected),
        with(Formulation::OneTime, Behaviour::Corrected),
    ];
    let run =
        || side("sweep", &cells, &items(0..40), |cell, index| !index.is_multiple_of(5) || cell % 2 == 1);
    let error = compare(&[run()], &CompareOptions::default()).unwrap_err();
    assert_eq!(error.to_string(), "several settings vary: formulation, behaviour");
    assert!(error.hint().unwrap().contains("--by formulation"), "{:?}", error.hint());
    let options = CompareOptions { by: Some(SettingsAxis::Formulation), ..CompareOptions::default() };
    let comparison = compare(&[run()], &options).unwrap();
    let pairs: Vec<_> = comparison.comparisons.iter().map(|one| (one.group.as_str(), &one.pair)).collect();
    let names = ("iterative".to_owned(), "onetime".to_owned());
    assert_eq!(pairs, [("paper", &names), ("corrected", &names)]);
    assert!(
        comparison.comparisons.iter().all(|pair| pair.newly_right.len() == 10 && pair.newly_wrong.is_empty())
    );
    let only = CompareOptions {
        only: vec![(SettingsAxis::Behaviour, "paper".to_owned())],
        ..CompareOptions::default()
    };
    assert_eq!(compare(&[run()], &only).unwrap().comparisons.len(), 1);
    let unknown = CompareOptions {
        only: vec![(SettingsAxis::Behaviour, "old".to_owned())],
        ..CompareOptions::default()
    };
    let told = compare(&[run()], &unknown).unwrap_err().to_string();
    assert!(told.contains("`old`") && told.contains("paper, corrected"), "{told}");
    let several = compare(&[run(), run()], &options).unwrap_err();
    assert_eq!(
        several.to_string(),
        "--by formulation compares the configurations of one run, but 2 runs are given"
    );
    assert!(several.hint().unwrap().contains("--only formulation=<VALUE>"), "{:?}", several.hint());
    let alone = side("alone", &cells[..1], &items(0..8), |_, _| true);
    assert!(matches!(compare(&[alone], &CompareOptions::default()), Err(CompareError::NothingVaries { .. })));
}

#[test]
fn seeds_are_pooled_and_can_be_compared() {
    let seeds = [configuration(0), configuration(1), configuration(2)];
    let run = |name: &str, by: u64| {
        side(name, &seeds, &items(0..40), move |cell, index| (index + cell as u64) % 4 < by)
    };
    let comparison = compare(&[run("a", 2), run("b", 3)], &CompareOptions::default()).unwrap();
    let metric = &comparison.comparisons[0].metrics[0];
    assert_eq!((metric.seeds, metric.items, metric.test), ((3, 3), 40, "sign_flip"));
    assert!(metric.p_value < 0.001 && metric.difference > 0.2, "{metric:?}");
    // Texts are of a seed that has the item's result.
    let pair = &comparison.comparisons[0];
    assert!(pair.newly_right.iter().all(|one| (one.cause_a, one.cause_b) == ("wrong answer", "correct")));
    assert!(!pair.newly_right.is_empty());
    let by_seed = CompareOptions { by: Some(SettingsAxis::Seed), ..CompareOptions::default() };
    let comparison = compare(&[run("a", 2)], &by_seed).unwrap();
    let pairs: Vec<_> = comparison.comparisons.iter().map(|one| one.pair.clone()).collect();
    assert_eq!(pairs, [("0".to_owned(), "1".to_owned()), ("0".to_owned(), "2".to_owned())]);
}

#[test]
fn unsettled_units_are_counted_and_bounded() {
    let all: Vec<Item> = (0..20).map(item).collect();
    let table = |right: u64| {
        table_of(&[configuration(0)], &all, move |_, item, outcome| {
            if outcome.as_ref().is_none_or(Outcome::is_fault) {
                outcome
            } else {
                like(if item.index < right { 0 } else { 9 }, item)
            }
        })
    };
    let side =
        |name: &str, right| Side { name: name.to_owned(), folder: PathBuf::from(name), table: table(right) };
    let comparison = compare(&[side("a", 5), side("b", 15)], &CompareOptions::default()).unwrap();
    let pair = &comparison.comparisons[0];
    assert_eq!((pair.not_compared.faulted_a, pair.not_compared.outstanding_b), (2, 2));
    let metric = &pair.metrics[0];
    let (low, high) = metric.bounds.unwrap();
    assert!(low < metric.difference && metric.difference < high && metric.items == 16, "{metric:?}");
    assert!(comparison.warnings.iter().any(|one| one.contains("8 units are faulted or outstanding")));
}

#[test]
fn models_are_told_apart_by_content() {
    let mut other = configuration(0);
    for role in [Role::Planner, Role::Grounder] {
        if let Some(model) = other.models.get_mut(&role) {
            model.content = lumos_tasks::ContentHash::of_bytes(b"other");
            model.name = format!("candle:/other/{role}");
        }
    }
    let cells = [configuration(0), other.clone()];
    let right = |cell: usize, index: u64| index % 2 == cell as u64;
    let sides = [side("a", &cells, &items(0..16), right), side("b", &cells, &items(0..16), right)];
    let comparison = compare(&sides, &CompareOptions::default()).unwrap();
    assert_eq!(comparison.comparisons.len(), 2);
    assert!(comparison.comparisons.iter().all(|pair| pair.metrics[0].difference == 0.0));
    let sides =
        [side("a", &cells, &items(0..16), right), side("b", &[other], &items(0..16), |_, i| i % 2 == 1)];
    let comparison = compare(&sides, &CompareOptions::default()).unwrap();
    assert_eq!((comparison.comparisons.len(), comparison.comparisons[0].metrics[0].difference), (1, 0.0));
    assert!(
        comparison.warnings.iter().any(|one| one.contains("no counterpart")),
        "{:?}",
        comparison.warnings
    );
}

#[test]
fn every_format_says_what_is_compared_with_what() {
    let sides = [
        side("before", &[configuration(0)], &items(0..40), |_, index| index.is_multiple_of(3)),
        side("after", &[with(Formulation::OneTime, Behaviour::Paper)], &items(0..40), |_, index| {
            index.is_multiple_of(4)
        }),
    ];
    let options = CompareOptions {
        labels: crate::results::Labels::parse(&["after=new"]).unwrap(),
        ..CompareOptions::default()
    };
    assert_eq!(Scoring::Paper, sides[0].table.scoring);
    let comparison = compare(&sides, &options).unwrap();
    let table = rendered(&comparison, CompareFormat::Terminal { width: 80 });
    assert!(table.lines().all(|line| line.chars().count() <= 80), "{table}");
    insta::assert_snapshot!("table", table);
    let markdown = rendered(&comparison, CompareFormat::Markdown);
    assert!(markdown.contains("A = before, B = new") && markdown.contains("B minus A"), "{markdown}");
    let json: serde_json::Value = serde_json::from_str(&rendered(&comparison, CompareFormat::Json)).unwrap();
    let pair = &json["comparisons"][0];
    assert_eq!((&pair["difference_of"], &pair["pair"]["b"]), (&"b - a".into(), &"new".into()), "{pair}");
    for key in ["difference", "interval", "p_value", "p_adjusted", "detectable", "unit", "test"] {
        assert!(!pair["metrics"][0][key].is_null(), "{key}: {pair}");
    }
    assert!(pair["metrics"][0]["interval"][0].is_number() && pair["newly_wrong"][0]["unit_a"].is_string());
    assert_eq!(pair["settings"][0]["setting"], "formulation");
    for format in ["table", "markdown", "json"] {
        assert!(format.parse::<CompareFormat>().is_ok());
    }
    assert!("csv".parse::<CompareFormat>().unwrap_err().contains("expected one of table"));
}
