//! Selects and matches the configurations of two sides, and pairs their items by content.

use std::collections::{BTreeMap, HashMap};

use lumos_tasks::{Behaviour, Formulation, ModelIdentity};

use super::Side;
use super::refusal::CompareError;
use crate::results::{BenchmarkItems, Labels, SeedGroup, SettingsAxis, aliases, seed_groups};

/// What decides whether two groups are the same experiment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct GroupKey {
    pub(crate) benchmark: String,
    pub(crate) formulation: Formulation,
    pub(crate) behaviour: Behaviour,
    /// Roles and content of the models.
    pub(crate) models: Vec<String>,
}

/// Matches groups of two sides: the only ones of a benchmark, otherwise those with the same formulation and behaviour,
/// otherwise also with the same models. A formulation or behaviour that each side has only one of does not separate
/// groups, so that a run in paper behaviour matches one in corrected behaviour. Returns positions in `a` and `b`; groups
/// without a partner are left out.
///
/// # Errors
/// If several groups differ only in their models or tools.
pub(crate) fn match_groups(a: &[GroupKey], b: &[GroupKey]) -> Result<Vec<(usize, usize)>, CompareError> {
    let of = |keys: &[GroupKey], benchmark: &str| -> Vec<usize> {
        (0..keys.len()).filter(|&at| keys[at].benchmark == benchmark).collect()
    };
    let mut matched = Vec::new();
    for (at, key) in a.iter().enumerate() {
        let (of_a, of_b) = (of(a, &key.benchmark), of(b, &key.benchmark));
        if let ([_], [other]) = (of_a.as_slice(), of_b.as_slice()) {
            matched.push((at, *other));
            continue;
        }
        let constant = |same: fn(&GroupKey, &GroupKey) -> bool| {
            of_a.windows(2).all(|pair| same(&a[pair[0]], &a[pair[1]]))
                && of_b.windows(2).all(|pair| same(&b[pair[0]], &b[pair[1]]))
        };
        let one_formulation = constant(|one, other| one.formulation == other.formulation);
        let one_behaviour = constant(|one, other| one.behaviour == other.behaviour);
        let same = |other: &GroupKey| {
            (one_formulation || other.formulation == key.formulation)
                && (one_behaviour || other.behaviour == key.behaviour)
        };
        let among = |keys: &[GroupKey], all: &[usize], with_models: bool| -> Vec<usize> {
            let keeps = |&at: &usize| same(&keys[at]) && (!with_models || keys[at].models == key.models);
            all.iter().copied().filter(keeps).collect()
        };
        let (mut own, mut others) = (among(a, &of_a, false), among(b, &of_b, false));
        if own.len() > 1 || others.len() > 1 {
            (own, others) = (among(a, &of_a, true), among(b, &of_b, true));
        }
        match (own.as_slice(), others.as_slice()) {
            (_, []) => {}
            ([_], [other]) => matched.push((at, *other)),
            _ => {
                let axes = vec![SettingsAxis::Model, SettingsAxis::Tool];
                return Err(CompareError::Ambiguous { axes, within_run: false });
            }
        }
    }
    Ok(matched)
}

/// A group of a side, with its names.
#[derive(Debug, Clone)]
pub(super) struct NamedGroup {
    pub(super) group: SeedGroup,
    pub(super) key: GroupKey,
    /// Value of every axis.
    values: BTreeMap<SettingsAxis, String>,
}

impl NamedGroup {
    pub(super) fn value(&self, axis: SettingsAxis) -> &str {
        self.values.get(&axis).map_or("", String::as_str)
    }

    /// Returns formulation and behaviour.
    pub(super) fn label(&self) -> String {
        format!("{} {}", self.value(SettingsAxis::Formulation), self.value(SettingsAxis::Behaviour))
    }
}

/// Returns short names for the models of all sides.
pub(super) fn model_aliases(sides: &[Side], labels: &Labels) -> BTreeMap<String, String> {
    let cells = sides.iter().flat_map(|side| &side.table.cells);
    let models = cells.flat_map(|cell| cell.planned.configuration.models.values());
    let names: Vec<&str> = models.map(|model| model.name.as_str()).collect();
    aliases(&names, labels)
}

/// Returns the groups of a side that `only` keeps. With `by` seed, every seed is a group of its own.
///
/// # Errors
/// If no group has a value.
pub(super) fn groups_of(
    side: &Side,
    aliases: &BTreeMap<String, String>,
    by: Option<SettingsAxis>,
    only: &[(SettingsAxis, String)],
) -> Result<Vec<NamedGroup>, CompareError> {
    let mut groups = seed_groups(&side.table);
    let by_seed = |axis: SettingsAxis| axis == SettingsAxis::Seed;
    if by.is_some_and(by_seed) || only.iter().any(|(axis, _)| by_seed(*axis)) {
        let split = |group: SeedGroup| {
            group.cells.into_iter().map(move |cell| SeedGroup { key: group.key.clone(), cells: vec![cell] })
        };
        groups = groups.into_iter().flat_map(split).collect();
    }
    let shown = |model: &ModelIdentity| aliases.get(&model.name).unwrap_or(&model.name).clone();
    let mut named: Vec<NamedGroup> = groups
        .into_iter()
        .map(|group| {
            let configuration = group.configuration(&side.table);
            let models = configuration.models.iter();
            let key = GroupKey {
                benchmark: configuration.benchmark.clone(),
                formulation: configuration.formulation,
                behaviour: configuration.behaviour,
                models: models.map(|(role, model)| format!("{role}={}", model.content)).collect(),
            };
            let values = SettingsAxis::ALL.map(|axis| (axis, axis.value(configuration, shown)));
            NamedGroup { key, values: values.into_iter().collect(), group }
        })
        .collect();
    for (axis, value) in only {
        let known: Vec<String> = named.iter().map(|group| group.value(*axis).to_owned()).collect();
        named.retain(|group| group.value(*axis) == value);
        if named.is_empty() {
            let mut known = known;
            known.dedup();
            let (run, value) = (side.name.clone(), value.clone());
            return Err(CompareError::UnknownValue { run, axis: *axis, value, known: known.join(", ") });
        }
    }
    Ok(named)
}

/// A pair of groups of one run, or of two runs: positions of the sides and the groups.
#[derive(Debug)]
pub(super) struct Matched {
    pub(super) sides: (usize, usize),
    pub(super) a: NamedGroup,
    pub(super) b: NamedGroup,
    /// The axis that separates them, for groups of one run.
    pub(super) by: Option<SettingsAxis>,
}

/// Matches the groups of one run that differ only in one axis: the first value with each later one.
///
/// # Errors
/// If nothing varies, or if several axes vary and none is selected.
pub(super) fn within(
    side: &Side,
    groups: &[NamedGroup],
    by: Option<SettingsAxis>,
) -> Result<Vec<Matched>, CompareError> {
    let varies = |axis: &SettingsAxis| {
        groups.iter().any(|one| {
            let same = |other: &&NamedGroup| other.key.benchmark == one.key.benchmark;
            groups.iter().filter(same).any(|other| other.value(*axis) != one.value(*axis))
        })
    };
    let varying: Vec<SettingsAxis> = SettingsAxis::ALL
        .into_iter()
        .filter(|axis| *axis != SettingsAxis::Seed || by == Some(*axis))
        .filter(varies)
        .collect();
    let axis = match (by, varying.as_slice()) {
        (Some(axis), varying) if varying.contains(&axis) => axis,
        (None, [axis]) => *axis,
        (None, [_, _, ..]) => return Err(CompareError::Ambiguous { axes: varying, within_run: true }),
        _ => return Err(CompareError::NothingVaries { run: side.name.clone() }),
    };
    let alike = |one: &NamedGroup, other: &NamedGroup| {
        one.key.benchmark == other.key.benchmark
            && varying
                .iter()
                .all(|other_axis| *other_axis == axis || one.value(*other_axis) == other.value(*other_axis))
    };
    let mut matched = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let Some(first) = groups[..at].iter().find(|first| alike(first, group)) else { continue };
        matched.push(Matched { sides: (0, 0), a: first.clone(), b: group.clone(), by: Some(axis) });
    }
    Ok(matched)
}

/// Items that two runs have in common, and how many only one of them has.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ItemPairs {
    /// Positions in a and in b, in the order of a.
    pub(crate) pairs: Vec<(u32, u32)>,
    /// Number of items that only a has.
    pub(crate) only_a: u64,
    /// Number of items that only b has.
    pub(crate) only_b: u64,
}

/// Pairs items with the same record: each side has its first items up to a number, because a configuration may have fewer
/// than the benchmark has in its run. If a data set contains a record more than once, its occurrences are paired in
/// order. Positions do not matter: the first run may have other items in between.
pub(crate) fn pair_items(
    (a, len_a): (&BenchmarkItems, usize),
    (b, len_b): (&BenchmarkItems, usize),
) -> ItemPairs {
    let ids = (a.ids.iter().take(len_a), b.ids.iter().take(len_b));
    let (count_a, count_b) = (ids.0.len(), ids.1.len());
    let position = |at: usize| u32::try_from(at).unwrap_or(u32::MAX);
    let of_b: HashMap<_, u32> = ids.1.enumerate().map(|(at, id)| (id, position(at))).collect();
    let pairs: Vec<(u32, u32)> =
        ids.0.enumerate().filter_map(|(at, id)| Some((position(at), *of_b.get(id)?))).collect();
    let paired = pairs.len();
    ItemPairs { only_a: (count_a - paired) as u64, only_b: (count_b - paired) as u64, pairs }
}
