//! Tests of tables, seed groups, pooled figures and the matrix on sample records.

use std::path::Path;

use lumos_benchmarks::statistics::{LEVEL, wilson};
use lumos_benchmarks::task_file::{TaskDefinition, TaskFamily, TaskFile};
use lumos_benchmarks::{IntervalMethod, MetricDefinition, MetricKind, Scoring, Share};
use lumos_coordinator::manifest::Manifest;
use lumos_coordinator::samples::{configuration, item, manifest_of, state};
use lumos_coordinator::{Checkpoint, Record, UnitView, unit_of};
use lumos_tasks::{Behaviour, Configuration, Formulation, Item, ModelIdentity, Outcome, Role, Task};

use super::*;

/// Returns the table of items under these configurations. `outcome` changes the sample outcome of a cell's item, which
/// is `None` for outstanding units.
pub(crate) fn table_of(
    configurations: &[Configuration],
    items: &[Item],
    outcome: impl Fn(usize, &Item, Option<Outcome>) -> Option<Outcome>,
) -> RunTable {
    let manifest = manifest_of(configurations, items);
    let mut builder = TableBuilder::new(&manifest, Scoring::Paper, None).unwrap();
    for (position, configuration) in manifest.configurations.iter().enumerate() {
        for item in items {
            let unit = unit_of(configuration, item);
            let sample = state(item.index, &unit).map(|record| record.outcome);
            let record = outcome(position, item, sample)
                .and_then(|outcome| Some(Record { outcome, ..state(0, &unit)? }));
            builder.add(&UnitView { position, configuration, item, unit, record, earlier: Vec::new() });
        }
    }
    builder.finish(&manifest)
}

/// Records the sample outcomes of items in two seeds, changed by `change`, in the folder of a run.
pub(crate) async fn recorded(run: &Path, items: u64, change: impl Fn(&mut Record)) -> (Manifest, Checkpoint) {
    let items: Vec<Item> = (0..items).map(item).collect();
    let manifest = manifest_of(&[configuration(0), configuration(1)], &items);
    let checkpoint = Checkpoint::create(&run.join("checkpoint")).unwrap();
    checkpoint.store_items("svamp", &items).unwrap();
    for planned in &manifest.configurations {
        for item in &items {
            if let Some(mut record) = state(item.index, &unit_of(planned, item)) {
                change(&mut record);
                checkpoint.record(record).await.unwrap();
            }
        }
    }
    (manifest, checkpoint)
}

/// Adds the benchmark `own` of a task file, whose first metric is judged.
pub(crate) fn add_judged_first(manifest: &mut Manifest) {
    let mut definition = TaskDefinition::new("own", TaskFamily::Maths, "items.jsonl");
    definition.metrics = vec!["llm_accuracy".to_owned(), "exact_match".to_owned()];
    let file = TaskFile { path: "own/task.toml".into(), definition };
    manifest.spec.task_files.insert("own".to_owned(), file);
}

/// Makes a benchmark that of a task file whose items have names.
pub(crate) fn add_named(manifest: &mut Manifest, benchmark: &str) {
    let mut definition = TaskDefinition::new(benchmark, TaskFamily::Maths, "items.jsonl");
    definition.fields.id = Some("id".to_owned());
    let file = TaskFile { path: "own/task.toml".into(), definition };
    manifest.spec.task_files.insert(benchmark.to_owned(), file);
}

fn items() -> Vec<Item> {
    (0..10).map(item).collect()
}

/// Returns the outcome of the sample item at another position, for the gold answer of this one.
pub(crate) fn like(index: u64, item: &Item) -> Option<Outcome> {
    let unit = unit_of(&manifest_of(&[configuration(0)], std::slice::from_ref(item)).configurations[0], item);
    let right = index % 10 < 4;
    let mut outcome = state(if right { 0 } else { 5 }, &unit)?.outcome;
    if right && let Some(lumos_tasks::Evidence::Maths(evidence)) = &mut outcome.evidence {
        evidence.prediction = Some(item.target.text().into());
    }
    Some(outcome)
}

#[test]
fn every_planned_unit_has_a_row() {
    let table = table_of(&[configuration(0)], &items(), |_, _, outcome| outcome);
    let cell = &table.cells[0];
    assert_eq!((cell.rows.len(), cell.metrics[0].name), (10, "exact_match"));
    let causes: Vec<&str> = cell.rows.iter().map(|row| row.cause.name()).collect();
    assert_eq!(
        causes[3..],
        [
            "correct",
            "wrong answer",
            "wrong answer",
            "limit",
            "grounder: unknown action",
            "faulted",
            "outstanding"
        ]
    );
    let full = |row: usize| cell.rows[row].is_full(0, &cell.metrics[0]);
    assert!(full(0) && !full(5));
    assert_eq!(cell.rows[8].share(0), None, "a fault is not scored");
    let states: Vec<UnitState> = cell.rows[6..].iter().map(|row| row.state).collect();
    assert_eq!(states, [UnitState::Answered, UnitState::GaveUp, UnitState::Faulted, UnitState::Outstanding]);
    assert_eq!((cell.rows[0].prompt_tokens, cell.rows[0].completion_tokens, cell.rows[0].turn), (200, 20, 1));
    assert_eq!(table.unsettled(), 2);
    let items = &table.benchmarks[0];
    assert_eq!((items.ids.len(), items.is_clustered), (10, false));
    assert_eq!(items.clusters, (0..10).collect::<Vec<u32>>());
}

#[test]
fn an_item_without_a_cluster_is_in_no_other_one() {
    let mut items: Vec<Item> = (0..5).map(item).collect();
    for (at, database) in [(1, "a"), (3, "a"), (4, "b")] {
        items[at].task = Task::Sql { question: "How many?".to_owned(), database: database.to_owned() };
    }
    let sql = Configuration { benchmark: "intercode_sql".to_owned(), ..configuration(0) };
    let table = table_of(&[sql], &items, |_, _, outcome| outcome);
    assert_eq!(table.benchmarks[0].clusters, [0, 1, 2, 1, 3]);
}

#[test]
fn configurations_that_differ_in_the_seed_are_one_group() {
    let other = Configuration { formulation: Formulation::OneTime, ..configuration(0) };
    let table = table_of(&[configuration(0), other, configuration(1)], &items(), |_, _, outcome| outcome);
    let groups: Vec<Vec<usize>> = seed_groups(&table).into_iter().map(|group| group.cells).collect();
    assert_eq!(groups, [vec![0, 2], vec![1]]);
}

#[test]
fn one_seed_has_the_figure_of_the_report() {
    let table = table_of(&[configuration(0)], &items(), |_, _, outcome| outcome);
    let pooled = pooled(&table, &seed_groups(&table)[0], 0);
    let mut tally = lumos_benchmarks::Tally::default();
    for row in table.cells[0].rows.iter().filter(|row| row.is_settled()) {
        tally.add(&lumos_benchmarks::ItemScore::default().with("exact_match", row.share(0).unwrap()));
    }
    assert_eq!(pooled.estimate, tally.finish(&table.cells[0].metrics[0]));
    assert_eq!((pooled.items, pooled.units, pooled.seeds), (8, 8, 1));
    assert_eq!(pooled.estimate.unwrap().method, Some(IntervalMethod::Wilson));
    assert_eq!((pooled.between_seeds, pooled.attempts), (None, Vec::new()));
}

#[test]
fn equal_seeds_add_no_information() {
    let one = table_of(&[configuration(0)], &items(), |_, _, outcome| outcome);
    let three: Vec<Configuration> = (0..3).map(configuration).collect();
    let three = table_of(&three, &items(), |_, _, outcome| outcome);
    let figure = |table: &RunTable| pooled(table, &seed_groups(table)[0], 0);
    let (one, three) = (figure(&one), figure(&three));
    let (single, repeated) = (one.estimate.unwrap(), three.estimate.unwrap());
    assert_eq!((single.value, single.items), (repeated.value, repeated.items));
    assert!((single.standard_error.unwrap() - repeated.standard_error.unwrap()).abs() < 1e-12);
    assert_eq!((three.units, three.items, three.between_seeds), (24, 8, Some(0.0)));
    for figure in three.attempts {
        assert_eq!((figure.pass_at_k, figure.pass_hat_k), (0.5, 0.5), "every seed has the same items right");
    }
}

#[test]
fn seeds_that_differ_have_attempt_figures() {
    let seeds = [configuration(0), configuration(1)];
    // The first seed has items 0 to 3 right, the second 2 to 5.
    let table =
        table_of(&seeds, &items(), |cell, item, _| like((item.index + 10 - 2 * cell as u64) % 10, item));
    let figure = pooled(&table, &seed_groups(&table)[0], 0);
    assert_eq!((figure.items, figure.units), (10, 20));
    assert_eq!(figure.estimate.unwrap().value, 0.4);
    let [one, all] = figure.attempts[..] else { panic!("{figure:?}") };
    assert!((one.pass_at_k - 0.4).abs() < 1e-12 && (one.pass_hat_k - 0.4).abs() < 1e-12);
    assert!((all.pass_at_k - 0.6).abs() < 1e-12 && (all.pass_hat_k - 0.2).abs() < 1e-12);
}

#[test]
fn the_matrix_marks_only_what_is_distinguishable() {
    let items: Vec<Item> = (0..40).map(item).collect();
    let model = |name: &str| {
        let mut other = configuration(0);
        for role in [Role::Planner, Role::Grounder] {
            let content = lumos_tasks::ContentHash::of_bytes(name.as_bytes());
            other
                .models
                .insert(role, ModelIdentity { name: format!("candle:/x/{name}"), content, dtype: None });
        }
        other
    };
    let table_with = |right_of_second: u64| {
        table_of(&[model("first"), model("second")], &items, move |cell, item, _| {
            like(if cell == 0 || item.index < right_of_second { 0 } else { 9 }, item)
        })
    };
    let close = matrix(&table_with(38), &Labels::default()).unwrap();
    let labels: Vec<&str> = close.rows.iter().map(|row| row.label.as_str()).collect();
    assert_eq!(labels, ["first", "second"]);
    let column = &close.columns[0];
    assert_eq!((column.best, column.is_distinguishable), (Some(0), false));
    assert!(
        column
            .note
            .as_ref()
            .unwrap()
            .starts_with("first, the best, is not distinguishable from second (difference 5.0 ± ")
    );
    let apart = matrix(&table_with(4), &Labels::parse(&["second=B"]).unwrap()).unwrap();
    assert_eq!((apart.columns[0].is_distinguishable, apart.columns[0].note.as_deref()), (true, None));
    assert_eq!(apart.rows[1].label, "B");
    assert_eq!(apart.rows[1].cells[0].unwrap().value, 0.1);
    let alone = table_of(&[configuration(0)], &items, |_, _, outcome| outcome);
    assert_eq!(matrix(&alone, &Labels::default()), None);
}

#[test]
fn the_matrix_marks_no_figure_that_is_worse_or_not_compared_with_another_one() {
    let items: Vec<Item> = (0..60).map(item).collect();
    let onetime = Configuration { formulation: Formulation::OneTime, ..configuration(0) };
    let corrected = Configuration { behaviour: Behaviour::Corrected, ..configuration(0) };
    let cells = [configuration(0), onetime, corrected];
    // Whether a cell has an item right; `None` without an outcome.
    let column = |cells: &[Configuration], right: fn(usize, u64) -> Option<bool>| {
        let table =
            table_of(cells, &items, |cell, item, _| like(if right(cell, item.index)? { 0 } else { 9 }, item));
        matrix(&table, &Labels::default()).unwrap().columns.remove(0)
    };
    let note = |column: &MatrixColumn| column.note.clone().unwrap();
    // Over the common items 0 to 19, the first is worse than the second; its other items are easier.
    let worse = column(&cells[..2], |cell, index| match (cell, index) {
        (0, ..40) => Some(index >= 10),
        (1, ..20) => Some(true),
        (1, 40..) => Some(false),
        _ => None,
    });
    assert_eq!((worse.best, worse.is_distinguishable), (Some(0), false));
    assert!(
        note(&worse).starts_with(
            "iterative has the best figure, but is worse than onetime over the items that both have (difference 50.0 ± "
        ),
        "{worse:?}"
    );
    // The first is better than the second, and has no items in common with the third.
    let apart = column(&cells, |cell, index| match (cell, index) {
        (0, ..40) => Some(true),
        (1, ..40) | (2, 40..) => Some(false),
        _ => None,
    });
    assert_eq!((apart.best, apart.is_distinguishable), (Some(0), false));
    assert!(
        note(&apart).contains("is not compared with iterative corrected: fewer than two items"),
        "{apart:?}"
    );
}

fn compared(table: &RunTable) -> MetricComparison {
    let groups = seed_groups(table);
    let shares = |group: &SeedGroup| item_shares(table, group, 0);
    let (a, b) = (shares(&groups[0]), shares(groups.last().unwrap()));
    let metric = table.cells[0].metrics[0];
    let items = a.iter().zip(&b).map(|(a, b)| ItemPair { a, b }).collect();
    let seeds = (groups[0].cells.len() as u64, groups.last().unwrap().cells.len() as u64);
    PairedItems { metric: &metric, items, clusters: None, seeds }.compare().unwrap()
}

#[test]
fn equal_sides_have_no_difference() {
    let table = table_of(&[configuration(0)], &items(), |_, _, outcome| outcome);
    let same = compared(&table);
    assert_eq!((same.difference, same.p_value, same.items, same.items_needed), (0.0, 1.0, 8, None));
    let flips = same.flips.unwrap();
    assert_eq!((flips.both_right, flips.only_a, flips.only_b, flips.both_wrong), (4, 0, 0, 4));
    assert!(same.interval.0 < 0.0 && same.interval.1 > 0.0, "few items prove little");
    // Two of ten units are not settled on either side.
    let (low, high) = same.bounds.unwrap();
    assert!((low + 0.2).abs() < 1e-12 && (high - 0.2).abs() < 1e-12, "{low} {high}");
}

#[test]
fn differences_are_second_minus_first_and_mirrored() {
    let cells = |first: Formulation, second: Formulation| {
        [first, second].map(|formulation| Configuration { formulation, ..configuration(0) })
    };
    let of = |cells: &[Configuration]| {
        table_of(cells, &items(), |cell, item, _| {
            let is_better = cells[cell].formulation == Formulation::OneTime;
            like(if is_better { item.index % 8 } else { item.index }, item)
        })
    };
    let forwards = compared(&of(&cells(Formulation::Iterative, Formulation::OneTime)));
    let backwards = compared(&of(&cells(Formulation::OneTime, Formulation::Iterative)));
    assert!((forwards.difference - 0.2).abs() < 1e-12 && (forwards.b - 0.6).abs() < 1e-12, "{forwards:?}");
    assert!((backwards.difference + 0.2).abs() < 1e-12);
    assert_eq!(forwards.p_value, backwards.p_value);
    assert!((forwards.interval.0 + backwards.interval.1).abs() < 1e-12);
    assert_eq!((forwards.test, forwards.interval_method), ("mcnemar_exact", "paired_score"));
    let flips = forwards.flips.unwrap();
    assert_eq!((flips.only_a, flips.only_b), (0, 2));
    assert_eq!(forwards.bounds, None, "all units are settled");
    // 2.80 standard errors.
    assert!((forwards.detectable / forwards.standard_error - 2.8016).abs() < 1e-3, "{forwards:?}");
}

#[test]
fn means_without_a_difference_have_a_width() {
    let seeds = [0, 1].map(configuration);
    let cells: Vec<Configuration> = [Formulation::Iterative, Formulation::OneTime]
        .into_iter()
        .flat_map(|formulation| seeds.clone().map(|cell| Configuration { formulation, ..cell }))
        .collect();
    let same = compared(&table_of(&cells, &items(), |_, item, _| like(item.index, item)));
    assert_eq!((same.difference, same.standard_error, same.interval_method), (0.0, 0.0, "stretched_wilson"));
    assert!(same.interval.0 < -0.2 && same.interval.1 > 0.2, "ten items prove little: {same:?}");
}

#[test]
fn seeds_are_compared_by_the_means_of_items() {
    let seeds = [0, 1, 0, 1].map(configuration);
    let cells: Vec<Configuration> = seeds
        .into_iter()
        .enumerate()
        .map(|(at, cell)| Configuration {
            formulation: if at < 2 { Formulation::Iterative } else { Formulation::OneTime },
            ..cell
        })
        .collect();
    let table = table_of(&cells, &items(), |cell, item, _| like(item.index + [0, 3, 1, 4][cell], item));
    let compared = compared(&table);
    assert_eq!((compared.seeds, compared.items), ((2, 2), 10));
    assert_eq!(
        (compared.test, compared.interval_method, compared.mid_p),
        ("sign_flip_exact", "student_t", None)
    );
    assert!(compared.flips.is_some(), "by majority, with ties wrong");
}

#[test]
fn missing_seeds_do_not_change_the_weight_of_an_item() {
    let cells: Vec<Configuration> = [Formulation::Iterative, Formulation::OneTime]
        .into_iter()
        .flat_map(|formulation| [0, 1].map(|seed| Configuration { formulation, ..configuration(seed) }))
        .collect();
    // Three wrong items have no outcome in the second seed of the first side.
    let table =
        table_of(
            &cells,
            &items(),
            |cell, item, _| {
                if cell == 1 && item.index > 6 { None } else { like(item.index, item) }
            },
        );
    let same = compared(&table);
    assert_eq!((same.a, same.b, same.difference, same.p_value), (0.4, 0.4, 0.0, 1.0));
    let flips = same.flips.unwrap();
    assert_eq!((flips.only_a, flips.only_b), (0, 0));
    let groups = seed_groups(&table);
    let [a, b] = [0, 1].map(|at| pooled(&table, &groups[at], 0));
    assert_eq!((a.units, b.units), (17, 20));
    assert_eq!(a.estimate, b.estimate);
}

/// Compares the shares of items, which have all seeds.
fn compared_shares(metric: &MetricDefinition, a: &[ItemShares], b: &[ItemShares]) -> MetricComparison {
    let items = a.iter().zip(b).map(|(a, b)| ItemPair { a, b }).collect();
    let seeds = (a[0].len() as u64, b[0].len() as u64);
    PairedItems { metric, items, clusters: None, seeds }.compare().unwrap()
}

#[test]
fn items_have_the_weight_of_their_steps_in_every_seed() {
    const F1: MetricDefinition = MetricDefinition {
        kind: MetricKind::BoundedMean { least: 0.0, most: 1.0 },
        ..MetricDefinition::proportion("action_f1", "")
    };
    // Tasks of one step with the value 1, and of five steps with a mean of 0.5, in three seeds.
    let task = |at: usize| {
        let (numerator, denominator) = if at < 50 { (1.0, 1.0) } else { (2.5, 5.0) };
        vec![Some(Share { numerator, denominator }); 3]
    };
    let shares: Vec<ItemShares> = (0..100).map(task).collect();
    let same = compared_shares(&F1, &shares, &shares);
    assert_eq!((same.a, same.b, same.difference), (525.0 / 900.0, 525.0 / 900.0, 0.0));
}

#[test]
fn equal_differences_have_a_width() {
    let metric = MetricDefinition::proportion("exact_match", "");
    let (right, wrong) = (Some(Share::once(1.0)), Some(Share::once(0.0)));
    let (a, b) = (vec![vec![wrong, wrong]; 10], vec![vec![right, wrong]; 10]);
    let better = compared_shares(&metric, &a, &b);
    assert_eq!((better.difference, better.standard_error), (0.5, 0.0));
    assert_eq!(better.interval_method, "stretched_wilson");
    let (_, share) = wilson(0.0, 10.0, LEVEL).unwrap();
    assert_eq!(better.interval, (0.5 - share * 1.5, 0.5 + share * 0.5));
}

#[test]
fn the_right_side_has_the_lower_value_if_lower_is_better() {
    let failed = MetricDefinition { higher_is_better: false, ..MetricDefinition::proportion("failed", "") };
    let (right, wrong) = (Some(Share::once(0.0)), Some(Share::once(1.0)));
    assert_eq!(is_right(&[right, right, wrong], &failed), Some(true));
    assert_eq!(is_right(&[right, wrong, wrong], &failed), Some(false));
    let a = vec![vec![wrong]; 10];
    let b: Vec<ItemShares> = (0..10).map(|item| vec![if item < 8 { right } else { wrong }]).collect();
    let better = compared_shares(&failed, &a, &b);
    let flips = better.flips.unwrap();
    assert_eq!((flips.only_a, flips.only_b, flips.both_wrong), (0, 8, 2));
    assert!((better.difference + 0.8).abs() < 1e-12 && better.test == "mcnemar_exact", "{better:?}");
    let (low, high) = better.interval;
    assert!(low < -0.8 && high > -0.8 && high < 0.0, "{better:?}");
}
