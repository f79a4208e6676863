//! Replays shopping episodes recorded by the original.
//!
//! A row contains Lucene's results, the cross-encoder's scores and the nouns of titles; the shop itself runs
//! again. Its catalogue and the exemplars of its prompts are in files next to the rows.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use lumos_environments::shop::{
    Goal, GoalMode, Raised, SearchEngine, Shop, ShopServices, ShopSession, Tagger, draw,
};
use lumos_tasks::families::shop::{End, Exemplars, ShopEvidence, ShopValue};
use lumos_tasks::recorded::Script;
use lumos_tasks::{
    Behaviour, Configuration, ContentHash, Episode, Evidence, Formulation, ItemId, Next, Passage, Reply,
    Role, Setup, Task, ToolCall, ToolReply, WorkUnit,
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use super::data_folder;
use super::drive::completion;
use crate::benchmark::Benchmark;
use crate::webshop::WebShop;

/// An episode recorded by the original.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct ShopCase {
    /// Name of the case.
    pub(super) id: String,
    /// The benchmark: `webshop`.
    pub(super) benchmark: String,
    /// Purpose of the case: `good…`, or the mutation.
    pub(super) mutation: String,
    /// The catalogue on which it was recorded.
    pub(super) catalogue: String,
    /// Source of its goal: `synthetic` or `human`.
    #[serde(default)]
    pub(super) goal_mode: Option<String>,
    /// The formulation: `iterative`, the only one that the original supports.
    pub(super) formulation: Formulation,
    /// The goal.
    pub(super) item: Value,
    /// Model replies, in the order of the calls.
    pub(super) script: Script,
    /// The exact prompts.
    pub(super) prompts: Script,
    /// Calls of helpers outside of the shop, in order.
    pub(super) tools: Vec<ShopTool>,
    /// Result of the episode.
    pub(super) expected: ShopExpected,
    /// Folder of the file that contains it.
    #[serde(skip)]
    pub(super) folder: PathBuf,
}

/// A call of a helper outside of the shop, and its result.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(tag = "tool", rename_all = "snake_case")]
pub(super) enum ShopTool {
    /// A search: ids of the products, including those not for sale.
    Lucene {
        /// The query.
        input: String,
        /// Ids, the best first.
        output: Vec<String>,
    },
    /// A ranking: one score per pair.
    CrossEncoder {
        /// Query and text.
        input: Vec<(String, String)>,
        /// Scores.
        output: Vec<f64>,
    },
    /// The nouns of a title.
    Pos {
        /// The title.
        input: String,
        /// Its nouns.
        output: Vec<String>,
    },
}

/// Result of a recorded episode.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct ShopExpected {
    /// Subgoals that were grounded.
    pub(super) subgoals: Vec<String>,
    /// Variables.
    pub(super) results: BTreeMap<String, ShopValue>,
    /// All actions sent to the shop, including repetitions.
    pub(super) env_actions: Vec<String>,
    /// Actions that are repeated at every click.
    pub(super) previous_actions: Vec<String>,
    /// How the original scored it.
    pub(super) outcome: End,
    /// The scored reward.
    pub(super) reward: Option<f64>,
    /// Whether a purchase was made.
    pub(super) purchase_seen: bool,
    /// The customer's request.
    #[serde(default)]
    pub(super) question: Option<String>,
    /// The module call, counted from 0, before which the original found that the item had ended.
    #[serde(default, deserialize_with = "present")]
    pub(super) solved_before_model_call: Option<Option<u32>>,
    /// Figures of a run over this item alone.
    #[serde(default)]
    pub(super) run: Option<ShopRun>,
}

/// Figures of the original's run over one item.
#[derive(Debug, Clone, PartialEq, Deserialize)]
pub(super) struct ShopRun {
    /// Sum of rewards.
    pub(super) tot_reward: f64,
    /// Number of items that ended.
    pub(super) len_solved: u32,
    /// Mean of their rewards.
    pub(super) average: Option<f64>,
    /// The exception if no item ended.
    pub(super) error: Option<String>,
}

impl ShopRun {
    fn of(evidence: &ShopEvidence) -> Self {
        let tot_reward = evidence.credited.as_ref().map_or(0.0, |bought| bought.reward);
        let ended = evidence.end != End::Unfinished;
        Self {
            tot_reward,
            len_solved: u32::from(ended),
            average: ended.then_some(tot_reward),
            error: (!ended).then(|| "ZeroDivisionError".to_owned()),
        }
    }

    fn is_near(&self, other: &Self) -> bool {
        near(Some(self.tot_reward), Some(other.tot_reward))
            && near(self.average, other.average)
            && (self.len_solved, &self.error) == (other.len_solved, &other.error)
    }
}

/// Distinguishes `null` from a missing field.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<u32>>, D::Error> {
    Option::deserialize(deserializer).map(Some)
}

/// Data shared by rows, loaded once.
struct World {
    shop: Arc<Shop>,
    goals: Vec<Goal>,
    exemplars: Exemplars,
}

/// Returns the path of a row's catalogue: `real_1000` is in the benchmark's data folder, others are next to
/// the rows.
fn catalogue_of(case: &ShopCase) -> PathBuf {
    match case.catalogue.as_str() {
        "real_1000" => data_folder(&case.folder).join("webshop"),
        _ => case.folder.join("catalogue"),
    }
}

/// Loads the shared data of a row; `None` if its files are missing.
fn world(case: &ShopCase) -> Result<Option<Arc<World>>, String> {
    /// By the catalogue's folder and the source of the goals.
    type Worlds = HashMap<(PathBuf, GoalMode), Arc<World>>;
    static WORLDS: OnceLock<Mutex<Worlds>> = OnceLock::new();
    let (catalogue, exemplars) =
        (catalogue_of(case), data_folder(&case.folder).join("lumos/webshop_exemplars.json"));
    if !catalogue.is_dir() || !exemplars.is_file() {
        return Ok(None);
    }
    let mut worlds = WORLDS.get_or_init(Mutex::default).lock().unwrap_or_else(PoisonError::into_inner);
    let mode = match case.goal_mode.as_deref() {
        None | Some("synthetic") => GoalMode::Synthetic,
        Some("human") => GoalMode::Human,
        Some(other) => return Err(format!("goal_mode: unknown value `{other}`")),
    };
    let key = (catalogue.clone(), mode);
    if let Some(world) = worlds.get(&key) {
        return Ok(Some(Arc::clone(world)));
    }
    let stock = crate::webshop::stock_in(&catalogue)?;
    let (prices, goals) = draw(stock.for_sale(), mode);
    let text = std::fs::read_to_string(&exemplars).map_err(|error| error.to_string())?;
    let exemplars = Exemplars::read(&text).map_err(|error| error.to_string())?;
    let world = Arc::new(World { shop: Arc::new(Shop::new(&stock, &prices)), goals, exemplars });
    worlds.insert(key, Arc::clone(&world));
    Ok(Some(world))
}

/// Replays a row. Returns `None` if it passes, or the reason why it was skipped.
///
/// # Errors
/// The first difference.
pub(super) fn replay(case: &ShopCase) -> Result<Option<String>, String> {
    let Some(world) = world(case)? else {
        return Ok(Some(format!("catalogue `{}` or exemplars not found", case.catalogue)));
    };
    let goal: Goal = serde_json::from_value(case.item.clone()).map_err(|error| error.to_string())?;
    same("benchmark", &case.benchmark.as_str(), &WebShop.name())?;
    same("formulation", &case.formulation, &Formulation::Iterative)?;
    drawn(case, &goal, &world.goals)?;
    let recorded = Arc::new(Recording::of(case, &world.shop));
    let nouns = Arc::new(Nouns::of(case));
    let staff = ShopServices {
        shop: Arc::clone(&world.shop),
        search: Arc::clone(&recorded) as Arc<dyn SearchEngine>,
        tagger: Arc::clone(&nouns) as Arc<dyn Tagger>,
    };
    let mut driver = Driver {
        case,
        recorded,
        nouns,
        visit: ShopSession::new(staff, goal.clone()),
        asked: Script::default(),
        actions: Vec::new(),
        rankings: Cell::new(0),
    };
    let evidence = driver.drive(&goal, &world.exemplars)?;
    driver.compare(&goal, &evidence)?;
    driver.used_up().map(|()| None)
}

/// Checks that the catalogue yields the row's goal for the row's number.
fn drawn(case: &ShopCase, goal: &Goal, goals: &[Goal]) -> Result<(), String> {
    let Some(index) = case.item.get("goal_index") else { return Ok(()) };
    let index = index.as_u64().and_then(|index| usize::try_from(index).ok());
    let Some(drawn) = index.and_then(|index| goals.get(index)) else {
        return Err(format!("item: found {} goals, expected goal {index:?}", goals.len()));
    };
    let close = |goal: &Goal| Goal { price_upper: drawn.price_upper, weight: drawn.weight, ..goal.clone() };
    same("item", &close(goal), drawn)?;
    for (field, recorded, got) in
        [("price_upper", goal.price_upper, drawn.price_upper), ("weight", goal.weight, drawn.weight)]
    {
        if !near(Some(recorded), Some(got)) {
            return Err(format!("item, {field}: expected {recorded}, got {got}"));
        }
    }
    Ok(())
}

/// Lucene's recorded results, in order.
struct Recording {
    shop: Arc<Shop>,
    searches: Vec<(String, Vec<u32>)>,
    next: Mutex<(usize, Option<String>)>,
}

impl Recording {
    fn of(case: &ShopCase, shop: &Arc<Shop>) -> Self {
        let searches = case.tools.iter().filter_map(|tool| match tool {
            ShopTool::Lucene { input, output } => {
                let known = output.iter().filter_map(|asin| shop.shelf().find(asin)).collect();
                Some((input.clone(), known))
            }
            _ => None,
        });
        Self { shop: Arc::clone(shop), searches: searches.collect(), next: Mutex::default() }
    }
}

impl SearchEngine for Recording {
    fn search(&self, keywords: &[&str]) -> Result<Vec<u32>, Raised> {
        if matches!(keywords.first(), Some(&("<r>" | "<a>" | "<c>" | "<q>"))) {
            return self.shop.search(keywords);
        }
        let asked = keywords.join(" ");
        let mut next = self.next.lock().unwrap_or_else(PoisonError::into_inner);
        match self.searches.get(next.0) {
            Some((query, found)) if *query == asked => {
                next.0 += 1;
                Ok(found.clone())
            }
            recorded => {
                let recorded = recorded.map_or("no further search", |(query, _)| query.as_str());
                next.1.get_or_insert_with(|| format!("searched for `{asked}`, expected `{recorded}`"));
                Ok(Vec::new())
            }
        }
    }
}

/// Recorded nouns of titles, and the titles that were requested.
struct Nouns {
    known: BTreeMap<String, Vec<String>>,
    asked: Mutex<BTreeSet<String>>,
}

impl Nouns {
    fn of(case: &ShopCase) -> Self {
        let known = case.tools.iter().filter_map(|tool| match tool {
            ShopTool::Pos { input, output } => Some((input.clone(), output.clone())),
            _ => None,
        });
        Self { known: known.collect(), asked: Mutex::default() }
    }
}

impl Tagger for Nouns {
    fn nouns(&self, title: &str) -> Vec<String> {
        self.asked.lock().unwrap_or_else(PoisonError::into_inner).insert(title.to_owned());
        self.known.get(title).cloned().unwrap_or_default()
    }
}

/// A running episode.
struct Driver<'a> {
    case: &'a ShopCase,
    recorded: Arc<Recording>,
    nouns: Arc<Nouns>,
    visit: ShopSession,
    asked: Script,
    actions: Vec<String>,
    /// Number of recorded rankings that were used.
    rankings: Cell<usize>,
}

impl Driver<'_> {
    fn drive(&mut self, goal: &Goal, exemplars: &Exemplars) -> Result<ShopEvidence, String> {
        let mut episode = Episode::start(&unit(self.case, goal, exemplars));
        loop {
            let reply = match episode.next() {
                Next::Done => break,
                Next::Generate(request) => {
                    let (role, recorded) = (request.role, (&self.case.prompts, &self.case.script));
                    let reply = completion(recorded, role, self.asked.of(role).len(), request.prompt())?;
                    self.asked.push(role, request.prompt());
                    reply
                }
                Next::Call(ToolCall::Shop(request)) => {
                    self.actions.extend(request.replay.iter().chain([&request.action]).cloned());
                    let served = self.visit.serve(request);
                    Reply::Tool(match served {
                        Ok(reply) => ToolReply::Shop(reply),
                        Err(raised) => ToolReply::Raised { message: raised.to_string() },
                    })
                }
                Next::Call(ToolCall::Rank { question, passages }) => {
                    Reply::Tool(ToolReply::Rank(self.ranked(question, passages)?))
                }
                Next::Call(call) => return Err(format!("unexpected call of the tool {}", call.tool())),
            };
            episode.feed(reply).map_err(|misfit| misfit.to_string())?;
        }
        match episode.finish().evidence {
            Some(Evidence::Shop(evidence)) => Ok(evidence),
            _ => Err("the episode ended without evidence".to_owned()),
        }
    }

    /// Returns the recorded scores, if these are the next recorded pairs.
    fn ranked(&self, question: &str, passages: &[Passage]) -> Result<Vec<f64>, String> {
        let mut rankings = self.case.tools.iter().filter_map(|tool| match tool {
            ShopTool::CrossEncoder { input, output } => Some((input, output)),
            _ => None,
        });
        let at = self.rankings.get();
        let (pairs, scores) =
            rankings.nth(at).ok_or_else(|| format!("ranking {} is not recorded", at + 1))?;
        self.rankings.set(at + 1);
        let asked = passages.iter().map(|passage| (question, passage.text.as_str()));
        let recorded = pairs.iter().map(|(query, text)| (query.as_str(), text.as_str()));
        if asked.eq(recorded) {
            return Ok(scores.clone());
        }
        let first = pairs.first().map_or("", |(query, _)| query);
        Err(format!(
            "ranking {}: {} texts for `{question}`, expected {} for `{first}`",
            at + 1,
            passages.len(),
            pairs.len()
        ))
    }

    fn compare(&self, goal: &Goal, evidence: &ShopEvidence) -> Result<(), String> {
        let expected = &self.case.expected;
        let unexpected = self.recorded.next.lock().unwrap_or_else(PoisonError::into_inner).1.clone();
        if let Some(unexpected) = unexpected {
            return Err(unexpected);
        }
        same("subgoals", &expected.subgoals, &evidence.subgoals)?;
        same("env_actions", &expected.env_actions, &self.actions)?;
        same("previous_actions", &expected.previous_actions, &evidence.actions)?;
        for (name, recorded) in &expected.results {
            same(name, &Some(recorded), &evidence.results.get(name))?;
        }
        same("results", &expected.results.len(), &evidence.results.len())?;
        same("outcome", &expected.outcome, &evidence.end)?;
        let reward = evidence.credited.as_ref().map(|bought| bought.reward);
        if !near(expected.reward, reward) {
            return Err(format!("reward: expected {:?}, got {reward:?}", expected.reward));
        }
        same("purchase_seen", &expected.purchase_seen, &evidence.first.is_some())?;
        if let Some(question) = &expected.question {
            same("question", question, &goal.instruction_text)?;
        }
        if let Some(recorded) = &expected.solved_before_model_call {
            same("solved_before_model_call", recorded, &self.found_ended(evidence))?;
        }
        let run = ShopRun::of(evidence);
        match &expected.run {
            Some(recorded) if !recorded.is_near(&run) => same("run", recorded, &run),
            _ => Ok(()),
        }
    }

    /// Returns the module call before which the original finds that the item has ended: the planner's call
    /// after the last grounded subgoal, unless that was the last call of all.
    fn found_ended(&self, evidence: &ShopEvidence) -> Option<u32> {
        let calls = u32::try_from(2 * self.asked.of(Role::Grounder).len()).ok()?;
        let all = 2 * WebShop.max_rounds(Behaviour::Paper);
        (evidence.end != End::Unfinished && calls < all).then_some(calls)
    }

    /// Checks that every recorded helper result was used.
    fn used_up(&self) -> Result<(), String> {
        let of = |kind: fn(&ShopTool) -> bool| self.case.tools.iter().filter(|tool| kind(tool)).count();
        let searched = self.recorded.next.lock().unwrap_or_else(PoisonError::into_inner).0;
        same("searches", &of(|tool| matches!(tool, ShopTool::Lucene { .. })), &searched)?;
        same("rankings", &of(|tool| matches!(tool, ShopTool::CrossEncoder { .. })), &self.rankings.get())?;
        let titled: BTreeSet<String> = self.nouns.known.keys().cloned().collect();
        same("titles", &titled, &*self.nouns.asked.lock().unwrap_or_else(PoisonError::into_inner))?;
        for role in [Role::Planner, Role::Grounder] {
            same("prompts", &self.case.prompts.of(role).len(), &self.asked.of(role).len())?;
        }
        Ok(())
    }
}

fn near(left: Option<f64>, right: Option<f64>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => (left - right).abs() < 1e-9,
        (left, right) => left == right,
    }
}

fn same<T: PartialEq + std::fmt::Debug>(field: &str, recorded: &T, got: &T) -> Result<(), String> {
    if recorded == got { Ok(()) } else { Err(format!("{field}: expected {recorded:?}, got {got:?}")) }
}

fn unit(case: &ShopCase, goal: &Goal, exemplars: &Exemplars) -> WorkUnit {
    let prompts = lumos_tasks::families::shop::prompts_hash(exemplars);
    let configuration =
        Configuration { prompts, ..super::configuration(&WebShop, Formulation::Iterative, Vec::new()) };
    let item = ItemId { content: ContentHash::of_bytes(case.id.as_bytes()), occurrence: 0 };
    let instruction = goal.instruction_text.clone();
    let task = Task::Shop { instruction, exemplars: Some(exemplars.clone()) };
    WorkUnit::new(item, task, Setup::None, Arc::new(configuration))
}
