//! Checks of the matrix of configurations: exclusions, overrides, and what the remaining configurations need.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use lumos_benchmarks::Benchmark;
use lumos_tasks::{Formulation, GenerationSettings, Role, Sampling};

use super::matrix::{Axes, MOST_CONFIGURATIONS};
use super::problems::{Known, Problems};
use super::rules::{Cell, CellSettings, ConfigurationFilter, MOST_RULES};
use super::run_spec::RunSpec;

impl Problems {
    /// Applies the exclusions and checks that every rule matches. Returns the configurations that are kept, each with the
    /// index of its set of models.
    pub(super) fn matrix<'a>(&mut self, spec: &RunSpec, axes: Axes<'a>) -> Vec<(usize, Cell<'a>)> {
        let exclude = spec.exclude.as_deref().unwrap_or_default();
        let overrides = spec.overrides.as_deref().unwrap_or_default();
        if axes.product() > MOST_CONFIGURATIONS {
            let Axes { tasks, formulations, models, behaviours, seeds } = axes;
            self.add(
                "tasks",
                format!(
                    "{} tasks × {} formulations × {} sets of models × {} behaviours × {} seeds are {} configurations, \
                     more than {MOST_CONFIGURATIONS}: split them into several runs",
                    tasks.len(),
                    formulations.len(),
                    models.len(),
                    behaviours.len(),
                    seeds.len(),
                    axes.product()
                ),
            );
            return Vec::new();
        }
        if exclude.len() > MOST_RULES || overrides.len() > MOST_RULES {
            self.add("exclude", format!("more than {MOST_RULES} rules of one kind"));
            return Vec::new();
        }
        let cells: Vec<_> = axes.cells().collect();
        let mut kept = cells.clone();
        // Without a matrix, which has an error of its own, no rule can match.
        if cells.is_empty() {
            return kept;
        }
        let everything: Vec<Cell<'_>> = cells.into_iter().map(|(_, cell)| cell).collect();
        let unmatched = |rule: &ConfigurationFilter, cells: &[Cell<'_>]| {
            let why = rule.unmatched(cells);
            format!(
                "matches no configuration: {why}; correct or remove the rule (a flag replaces the list of the file)"
            )
        };
        for (index, rule) in exclude.iter().enumerate() {
            if rule.is_empty() {
                self.rule(
                    spec,
                    "exclude",
                    index,
                    "excludes everything: set task, model, formulation, behaviour or seed",
                );
            } else if !everything.iter().any(|cell| rule.selects(cell)) {
                self.rule(spec, "exclude", index, unmatched(rule, &everything));
            }
        }
        kept.retain(|(_, cell)| !exclude.iter().any(|rule| !rule.is_empty() && rule.selects(cell)));
        if kept.is_empty() {
            self.rule(spec, "exclude", exclude.len() - 1, "all configurations are excluded");
            return kept;
        }
        for (index, rule) in overrides.iter().enumerate() {
            if rule.filter.is_empty() {
                self.rule(
                    spec,
                    "override",
                    index,
                    "missing `match`: set the value for all configurations outside the rule",
                );
            } else if !kept.iter().any(|(_, cell)| rule.filter.selects(cell)) {
                let cells: Vec<_> = kept.iter().map(|(_, cell)| cell.clone()).collect();
                let excluded = everything.iter().any(|cell| rule.filter.selects(cell));
                let why = if excluded {
                    "matches only excluded configurations".to_owned()
                } else {
                    unmatched(&rule.filter, &cells)
                };
                self.rule(spec, "override", index, why);
            }
        }
        kept
    }

    /// Adds the error of a rule, with its place in the file.
    pub(super) fn rule(
        &mut self,
        spec: &RunSpec,
        key: &'static str,
        index: usize,
        message: impl Into<String>,
    ) {
        let lines = if key == "exclude" { &spec.places.exclude } else { &spec.places.overrides };
        let message = message.into();
        match lines.get(index) {
            Some(line) => self.add("", format!("{}:{line}: `{key}`: {message}", spec.places.file)),
            None => self.add(key, message),
        }
    }

    /// Checks that benchmarks support the formulations of their configurations.
    pub(super) fn formulations(
        &mut self,
        kept: &[(usize, Cell<'_>)],
        formulations: &[Formulation],
        tasks: Known<'_>,
    ) {
        for benchmark in tasks {
            let supported = benchmark.formulations();
            let name = benchmark.name();
            for &formulation in formulations.iter().filter(|one| !supported.contains(one)) {
                if !kept.iter().any(|(_, cell)| cell.task == name && cell.formulation == formulation) {
                    continue;
                }
                let names = supported.iter().map(|one| one.name()).collect::<Vec<_>>().join(", ");
                let mut message = format!("{name} does not support {formulation}; supported are {names}");
                if formulations.iter().any(|one| supported.contains(one)) {
                    message.push_str(&format!(
                        " (or add [[exclude]] with task = \"{name}\" and formulation = \"{formulation}\")"
                    ));
                }
                self.add("formulation", message);
            }
        }
    }

    /// Checks that every set of models has the roles of its configurations.
    pub(super) fn roles(
        &mut self,
        kept: &[(usize, Cell<'_>)],
        models: &[BTreeMap<Role, String>],
        tasks: Known<'_>,
    ) {
        let mut missing: BTreeSet<(usize, Role)> = BTreeSet::new();
        for (set, cell) in kept {
            let benchmark = tasks.iter().find(|one| one.name() == cell.task);
            let supported = benchmark.filter(|one| one.formulations().contains(&cell.formulation));
            for &role in supported.map_or(&[][..], |one| one.roles(cell.formulation)) {
                let has = models.get(*set).is_some_and(|set| set.contains_key(&role));
                if !has && missing.insert((*set, role)) {
                    let formulation = cell.formulation;
                    self.add(
                        "models",
                        format!(
                            "formulation {formulation} needs a model for the {role}: pass `--{role}` or `--model`"
                        ),
                    );
                }
            }
        }
    }

    /// Checks the settings of rules.
    pub(super) fn overrides(
        &mut self,
        spec: &RunSpec,
        kept: &[(usize, Cell<'_>)],
        generation: GenerationSettings,
        tasks: Known<'_>,
    ) {
        for (index, rule) in spec.overrides.iter().flatten().enumerate() {
            if let Some(stop) = &rule.stop {
                let is_affected =
                    |name: &str| kept.iter().any(|(_, cell)| cell.task == name && rule.filter.selects(cell));
                let affected = tasks.iter().filter(|one| is_affected(one.name()));
                let problem =
                    stop.problem().or_else(|| affected.into_iter().find_map(|one| stop.unknown(*one)));
                if let Some(problem) = problem {
                    self.rule(spec, "override", index, problem);
                }
                if spec.partition.is_some() {
                    let message =
                        "`stop` and `partition` exclude each other: a part has too few of the first items";
                    self.rule(spec, "override", index, message);
                }
            }
            if !rule.has_settings() {
                self.rule(
                    spec,
                    "override",
                    index,
                    "sets nothing: expected limit, generation, tools, priority or stop",
                );
            }
            if rule.limit == Some(0) {
                self.rule(spec, "override", index, "`limit`: expected a positive integer, found 0");
            }
            if rule.limit.is_some() && spec.samples.is_some() {
                let message = "`limit` and `samples` exclude each other: remove one of them";
                self.rule(spec, "override", index, message);
            }
            let mut of_rule = Self::default();
            of_rule.generation(&rule.generation, generation);
            for (_, message) in of_rule.0 {
                self.rule(spec, "override", index, message);
            }
        }
    }

    /// With greedy decoding, every seed yields the same episode.
    pub(super) fn repetitions(
        &mut self,
        kept: &[(usize, Cell<'_>)],
        spec: &RunSpec,
        generation: GenerationSettings,
        seeds: &[u64],
        tasks: Known<'_>,
    ) {
        let rules = spec.overrides.as_deref().unwrap_or_default();
        let mut seen = HashSet::new();
        let mut repeated: BTreeSet<&str> = BTreeSet::new();
        for (set, cell) in kept.iter().filter(|_| seeds.len() > 1) {
            let is_greedy = CellSettings::of(cell, rules, generation).generation.sampling == Sampling::Greedy;
            if is_greedy && !seen.insert((cell.task, cell.formulation, set, cell.behaviour)) {
                repeated.insert(cell.task);
            }
        }
        let is_same = |one: &&&'static dyn Benchmark| !one.draws() && repeated.contains(one.name());
        let same: Vec<&str> = tasks.iter().filter(is_same).map(|one| one.name()).collect();
        if !same.is_empty() {
            let given = seeds.iter().map(ToString::to_string).collect::<Vec<_>>().join(",");
            self.add(
                "seed",
                format!(
                    "greedy decoding gives the same episodes of {} for all seeds {given}: pass \
                     `--temperature 0.7` to sample, or one seed",
                    same.join(", ")
                ),
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use crate::spec::resolve::tests::{known, refused};
    use crate::spec::rules::Cell;
    use crate::spec::{ItemChoice, ResolvedSpec, RunSpec, Selection};

    /// Reads a sweep of two benchmarks and two models.
    fn sweep(rules: &str) -> RunSpec {
        let lists = "tasks = ['gsm8k', 'hotpotqa']\nformulation = ['iterative', 'cot']\nseed = '0-1'";
        let models = "models = ['candle:m/a', 'candle:m/b']\n[generation]\ntemperature = 0.5";
        RunSpec::from_toml(&format!("{lists}\n{models}\n{rules}"), "sweep.toml", None).unwrap()
    }

    fn cells_of(spec: &ResolvedSpec) -> Vec<String> {
        let text = |cell: Cell<'_>| {
            format!("{} {} {} {}", cell.task, cell.formulation, cell.models.join("+"), cell.seed)
        };
        spec.cells().map(|(_, cell)| text(cell)).collect()
    }

    #[test]
    fn exclusions_leave_out_configurations_and_what_only_they_need() {
        let whole = sweep("").resolve_against(&known()).unwrap();
        assert_eq!((cells_of(&whole).len(), whole.exclude.len()), (16, 0));
        let rules = "[[exclude]]\ntask = 'hotpot*'\n[[exclude]]\nmodel = 'b'\nformulation = 'cot'\nseed = 1";
        let less = sweep(rules).resolve_against(&known()).unwrap();
        assert_eq!(less.tasks, ["gsm8k"]);
        assert_eq!(less.items.keys().collect::<Vec<_>>(), ["gsm8k"]);
        let cells = cells_of(&less);
        assert_eq!(cells.len(), 7, "{cells:?}");
        assert!(!cells.iter().any(|cell| cell.contains("cot") && cell.ends_with("m/b 1")), "{cells:?}");
        assert_ne!(less.name, sweep("[[exclude]]\ntask = 'hotpot*'").resolve_against(&known()).unwrap().name);
        let text = serde_json::to_string(&less).unwrap();
        assert_eq!(cells_of(&serde_json::from_str(&text).unwrap()), cells);

        // A benchmark without the formulation, and a model without the roles, are fine if the cells are excluded.
        let text = "tasks = ['gsm8k', 'webshop']\nformulation = ['iterative', 'cot']\n\
                    models = [{ model = 'candle:a' }, { answerer = 'candle:chat' }]\n";
        let read = |rules: &str| RunSpec::from_toml(&format!("{text}{rules}"), "sweep.toml", None).unwrap();
        let message = refused(read("[[exclude]]\ntask = 'webshop'\nmodel = 'chat'"));
        assert!(
            message.contains("webshop does not support cot; supported are iterative (or add [[exclude]]"),
            "{message}"
        );
        assert!(message.contains("formulation iterative needs a model for the planner"), "{message}");
        let rules = "exclude = [{ task = 'webshop', formulation = 'cot' }, { model = 'chat', formulation = 'iterative' }]";
        let spec = read(rules).resolve_against(&known()).unwrap();
        let expected = [
            "gsm8k iterative candle:a+candle:a+candle:a 0",
            "gsm8k cot candle:a+candle:a+candle:a 0",
            "gsm8k cot candle:chat 0",
            "webshop iterative candle:a+candle:a+candle:a 0",
        ];
        assert_eq!(cells_of(&spec), expected);
    }

    #[test]
    fn rules_that_have_no_effect_are_refused_with_their_line() {
        let said = |rules: &str| refused(sweep(rules));
        let line = sweep("").places;
        assert_eq!(line, crate::spec::RulePlaces::default());
        let message = said("[[exclude]]\ntask = 'gsm8k'\n\n[[exclude]]\ntask = 'hotpot'");
        assert!(
            message.starts_with(
                "sweep.toml:10: `exclude`: matches no configuration: no configuration has task `hotpot`; \
                 did you mean `hotpotqa`?"
            ),
            "{message}"
        );
        let pair = said("[[override]]\nmatch = { task = 'gsm8k', seed = 5 }\nlimit = 3");
        assert!(
            pair.starts_with(
                "sweep.toml:7: `override`: matches no configuration: no configuration has seed `5`"
            ),
            "{pair}"
        );
        let cases = [
            ("[[exclude]]", "`exclude`: excludes everything"),
            ("[[exclude]]\nseed = '0-1'", "`exclude`: all configurations are excluded"),
            ("[[override]]\nlimit = 3", "`override`: missing `match`"),
            ("[[override]]\nmatch.task = 'gsm8k'", "`override`: sets nothing"),
            ("[[override]]\nmatch.task = 'gsm8k'\nlimit = 0", "`limit`: expected a positive integer"),
            ("[[override]]\nmatch.seed = 0\ngeneration.top_p = 2", "invalid top_p"),
            ("[[override]]\nmatch.seed = 0\ngeneration.temperature = 0\ngeneration.top_k = 2", "above 0"),
            ("[[override]]\nmatch.seed = 0\ngeneration.temperature = -1", "invalid temperature -1"),
            (
                "[[override]]\nmatch.seed = 0\nstop = { after = 5 }",
                "`stop`: expected `below`, `above` or both",
            ),
            (
                "[[override]]\nmatch.task = '*'\nstop = { after = 5, below = 3, metric = 'f2' }",
                "sweep.toml:7: `override`: `stop.metric`: gsm8k does not have the metric `f2`: expected one of exact_match",
            ),
            (
                "[[override]]\nmatch.task = 'gsm8k'\ngeneration.temperature = 0",
                "greedy decoding gives the same",
            ),
            (
                "[[exclude]]\nseed = 1\n[[override]]\nmatch.seed = 1\nlimit = 2",
                "sweep.toml:9: `override`: matches only excluded configurations",
            ),
        ];
        for (rules, expected) in cases {
            let message = said(rules);
            assert!(message.contains(expected), "{rules}:\n{message}");
        }
        let chosen = RunSpec {
            samples: Some(BTreeMap::from([("gsm8k".to_owned(), Selection::of([1]))])),
            ..sweep("[[override]]\nmatch.task = 'gsm8k'\nlimit = 3")
        };
        assert!(refused(chosen).contains("`limit` and `samples` exclude each other"));
        let part = RunSpec {
            partition: Some("hash:1/2".parse().unwrap()),
            ..sweep("[[override]]\nmatch.task = 'gsm8k'\nstop = { after = 3, below = 5 }")
        };
        assert!(refused(part).contains("`stop` and `partition` exclude each other"));
        // One seed remains where decoding is greedy.
        let rules = "[[override]]\nmatch.task = 'gsm8k'\ngeneration.temperature = 0\n[[exclude]]\ntask = 'gsm8k'\nseed = 1";
        assert_eq!(cells_of(&sweep(rules).resolve_against(&known()).unwrap()).len(), 12);
    }

    #[test]
    fn the_size_of_the_matrix_is_bounded() {
        let seeds = |count: u64| RunSpec { seed: Some((0..count).collect()), ..sweep("") };
        assert!(seeds(1250).resolve_against(&known()).is_ok());
        let message = refused(seeds(1251));
        assert!(
            message.contains("2 tasks × 2 formulations × 2 sets of models × 1 behaviours × 1251 seeds"),
            "{message}"
        );
        assert!(message.contains("are 10008 configurations, more than 10000"), "{message}");
    }

    #[test]
    fn limits_of_rules_decide_how_much_data_is_needed() {
        let needed = |limit: Option<u64>, rules: &str| {
            let spec = RunSpec { limit, ..sweep(rules) }.resolve_against(&known()).unwrap();
            ["gsm8k", "hotpotqa"].map(|task| spec.needed_items(task))
        };
        let rule = |filter: &str, limit: u64| format!("[[override]]\nmatch.{filter}\nlimit = {limit}\n");
        let first = ItemChoice::First;
        assert_eq!(needed(None, ""), [ItemChoice::All, ItemChoice::All]);
        assert_eq!(needed(None, &rule("task = 'gsm8k'", 5)), [first(5), ItemChoice::All]);
        assert_eq!(needed(None, &rule("model = 'a'", 5)), [ItemChoice::All, ItemChoice::All]);
        assert_eq!(needed(Some(3), &rule("model = 'a'", 5)), [first(5), first(5)]);
        assert_eq!(needed(Some(9), &rule("model = 'a'", 5)), [first(9), first(9)]);
        let two = rule("task = '*'", 5) + &rule("model = 'a'", 7);
        assert_eq!(needed(Some(90), &two), [first(7), first(7)]);
    }

    #[test]
    fn backends_are_needed_where_tools_are_called_and_no_rule_sets_them() {
        let needed = |rules: &str| {
            let spec = sweep(rules).resolve_against(&known()).unwrap();
            ["gsm8k", "hotpotqa"].map(|task| spec.needs_backend(task, "maths"))
        };
        let rule = |filter: &str| format!("[[override]]\nmatch.{filter}\ntools = {{ maths = 'wolfram' }}\n");
        assert_eq!(needed(""), [true, true]);
        assert_eq!(needed("[[exclude]]\ntask = 'hotpotqa'\nformulation = 'iterative'"), [true, false]);
        assert_eq!(needed(&rule("task = 'hotpotqa'")), [true, false]);
        assert_eq!(needed(&rule("model = 'a'")), [true, true]);
        let both = rule("model = 'a'") + &rule("model = 'b'");
        assert_eq!(needed(&both), [false, false]);
        assert_eq!(needed(&both.replace("maths", "rank")), [true, true]);
    }

    #[test]
    fn only_rules_that_affect_results_change_the_name() {
        let name = |rules: &str| sweep(rules).resolve_against(&known()).unwrap().name;
        let rule = |setting: &str| format!("[[override]]\nmatch.task = 'gsm8k'\n{setting}");
        assert_eq!(name(&rule("priority = 3")), name(""));
        assert_eq!(name(&rule("stop = { after = 3, below = 5 }")), name(""));
        assert_ne!(name(&rule("limit = 3")), name(""));
        assert_ne!(name(&rule("limit = 3")), name(&rule("limit = 4")));
        let order = RunSpec { order: Some(crate::spec::DispatchOrder::RoundRobin), ..sweep("") };
        assert_eq!(order.resolve_against(&known()).unwrap().name, name(""));
    }
}
