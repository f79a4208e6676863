//! Leaves of recorded cases that are irrelevant to a replay.

use serde_json::Value;

/// Leaves that are irrelevant, and the reason.
pub(crate) struct Exempt {
    /// Prefix of the kind of case; empty for all kinds.
    kind: &'static str,
    /// The leaf's path, or its prefix followed by `…`.
    pattern: &'static str,
    /// Whether the exemption applies to this leaf of this case.
    when: fn(&Value, &str) -> bool,
    /// Why it is irrelevant.
    reason: &'static str,
}

impl Exempt {
    /// Whether the exemption covers a leaf.
    pub(crate) fn covers(&self, kind: &str, pattern: &str, case: &Value, pointer: &str) -> bool {
        let fits = match self.pattern.strip_suffix('…') {
            Some(start) => pattern.starts_with(start),
            None => pattern == self.pattern,
        };
        kind.starts_with(self.kind) && fits && (self.when)(case, pointer)
    }

    /// Describes the exemption.
    pub(crate) fn describe(&self) -> String {
        format!("{} {}: {}", self.kind, self.pattern, self.reason)
    }
}

const fn all(kind: &'static str, pattern: &'static str, reason: &'static str) -> Exempt {
    Exempt { kind, pattern, when: |_, _| true, reason }
}

const fn some(
    kind: &'static str,
    pattern: &'static str,
    when: fn(&Value, &str) -> bool,
    reason: &'static str,
) -> Exempt {
    Exempt { kind, pattern, when, reason }
}

/// Returns the list position `back` parts before the end of a pointer.
fn place(pointer: &str, back: usize) -> usize {
    pointer.rsplit('/').nth(back).unwrap().parse().unwrap()
}

/// Number of turns that count; all if it is not recorded.
fn effective_turns(case: &Value) -> usize {
    case["effective_turns"].as_u64().map_or(usize::MAX, |turns| usize::try_from(turns).unwrap())
}

/// The original rejects the record before the first model call.
fn is_refused(case: &Value, _: &str) -> bool {
    !case["expected"]["raises"].is_null()
        && (effective_turns(case) == 0 || case["prompts"]["answer"].as_array().is_some_and(Vec::is_empty))
}

fn raises(case: &Value, _: &str) -> bool {
    !case["expected"]["raises"].is_null()
}

/// An action failed, so the item's values are missing.
fn is_failed(case: &Value, _: &str) -> bool {
    case["expected"].get("results").is_some_and(Value::is_null)
}

/// Only one passage was ranked.
fn is_alone(case: &Value, pointer: &str) -> bool {
    let (list, _) = pointer.rsplit_once('/').unwrap();
    case.pointer(list).and_then(Value::as_array).is_some_and(|scores| scores.len() == 1)
}

/// The turn follows the last one that counts.
fn is_behind_the_end(case: &Value, pointer: &str) -> bool {
    let stops =
        |reply: &Value| reply.as_str().is_some_and(|reply| reply.contains("Yes, I will stop planning"));
    let (turns, place) = (effective_turns(case), place(pointer, 0));
    place >= turns
        || (pointer.contains("/ground/") && turns == place + 1 && stops(&case["script"]["plan"][place]))
}

/// The calculator repeats the query in other words if the service returns a list.
fn is_asked_again(case: &Value, pointer: &str) -> bool {
    let (call, _) = pointer.split_once("/output").unwrap();
    let query = case.pointer(call).unwrap()["input"].as_str().unwrap_or_default();
    query.starts_with("Expand ") || query.starts_with("Calculate ")
}

/// The page of a step without recorded actions, or a candidate that the original ignores.
fn is_not_looked_at(case: &Value, pointer: &str) -> bool {
    let mut parts = pointer.split('/').skip(3);
    let step: u64 = parts.next().unwrap().parse().unwrap();
    let steps = case["expected"]["steps"].as_array().unwrap();
    let positives = case["item"]["actions"][step as usize]["pos_candidates"].as_array().unwrap().len();
    let is_far = parts.next() == Some("neg_candidates")
        && parts.next().unwrap().parse::<usize>().unwrap() + positives >= 50;
    is_far || steps.iter().all(|one| one["step"] != step)
}

/// The gold action of the last executed step or of a later one: the planner sees the earlier ones only.
fn is_never_told(case: &Value, pointer: &str) -> bool {
    place(pointer, 0) + 1 >= usize::try_from(case["expected"]["iterations"].as_u64().unwrap()).unwrap()
}

/// The reply whose action ends the run.
fn ends_the_run(case: &Value, pointer: &str) -> bool {
    case["expected"]["error"].is_string() && is_never_told(case, pointer)
}

/// The original makes further calls after the item has ended; their prompts are not recorded.
fn has_no_prompt(case: &Value, pointer: &str) -> bool {
    let (list, _) = pointer.rsplit_once('/').unwrap();
    let prompts = case.pointer(&list.replace("/script", "/prompts")).and_then(Value::as_array).unwrap();
    place(pointer, 0) >= prompts.len()
}

fn tool<'a>(case: &'a Value, pointer: &str) -> &'a str {
    let (call, _) = pointer.split_once("/output").unwrap();
    case.pointer(call).unwrap()["tool"].as_str().unwrap()
}

fn is_noun(case: &Value, pointer: &str) -> bool {
    tool(case, pointer) == "pos"
}

/// No conversation is longer than the limit.
fn is_never_reached(case: &Value, _: &str) -> bool {
    let limit = case["dialogue_limit"].as_u64().unwrap();
    let sent = case["roles_sent"].as_array().unwrap().iter();
    sent.map(|roles| roles.as_array().unwrap().len() as u64).all(|length| length <= limit + 1)
}

/// The error of the gold query.
fn is_of_gold(case: &Value, pointer: &str) -> bool {
    case.pointer(pointer.split("/error").next().unwrap()).unwrap()["input"] == case["gold_sql"]
}

/// Returns the observation of the turn of a logged action.
fn shown<'a>(case: &'a Value, pointer: &str) -> &'a str {
    case["turn_history"]["observations"][place(pointer, 0)].as_str().unwrap_or_default()
}

fn gave_rows(case: &Value, pointer: &str) -> bool {
    shown(case, pointer).starts_with('[')
}

fn failed(case: &Value, pointer: &str) -> bool {
    shown(case, pointer).starts_with("Error executing query: ")
}

fn has_no_code(case: &Value, pointer: &str) -> bool {
    !gave_rows(case, pointer) && !failed(case, pointer)
}

fn is_unsolved(case: &Value, _: &str) -> bool {
    case["summary"]["max_reward"] != 1.0
}

/// A `onetime` record does not contain the actions of a failed item.
fn is_failed_at_once(case: &Value, pointer: &str) -> bool {
    is_failed(case, pointer) && case["formulation"] == "onetime"
}

/// A `onetime` record contains only the last value of a variable, and the same value is computed again later.
fn is_overwritten(case: &Value, pointer: &str) -> bool {
    let tools = case["tools"].as_array().unwrap();
    let number = place(pointer, 1);
    let again = tools.iter().skip(number + 1).any(|later| later["input"] == tools[number]["input"]);
    case["formulation"] == "onetime" && again
}

/// An address of a site other than the encyclopaedia.
fn is_elsewhere(case: &Value, pointer: &str) -> bool {
    tool(case, pointer) == "google" && !case.pointer(pointer).unwrap().as_str().unwrap().contains("wikipedia")
}

fn is_dropped(case: &Value, pointer: &str) -> bool {
    case["expected"]["outcome"] == "dropped"
        && place(pointer, 0) + 1 == case["prompts"]["ground"].as_array().unwrap().len()
}

/// After the two products that are read from a page.
fn is_not_read(case: &Value, pointer: &str) -> bool {
    tool(case, pointer) == "lucene" && place(pointer, 0) >= 2
}

fn is_broken_off(case: &Value, _: &str) -> bool {
    case["error"].is_string()
}

/// All exemptions.
pub(crate) const EXEMPT: &[Exempt] = &[
    all("", "/id", "the case's name in reports"),
    all("", "/tags/*", "describes the mutation"),
    some("", "/item…", is_refused, "of a rejected record only the invalid field is read"),
    some("", "/formulation", is_refused, "a rejected record is rejected in every formulation"),
    some("", "/script…", is_refused, "a rejected record causes no calls"),
    some("", "/prompts…", is_refused, "a rejected record causes no calls"),
    some("", "/tools…", is_refused, "a rejected record causes no calls"),
    all("hotpotqa", "/item/_id", "the record's name"),
    all("hotpotqa", "/item/type", "the record's group, which the agent does not see"),
    all("svamp", "/item/ID", "the record's name"),
    all("svamp", "/item/Type", "the record's group, which the agent does not see"),
    all("svamp", "/item/Equation", "the gold answer's derivation, which is not used"),
    some(
        "",
        "/item/answer",
        raises,
        "a run that ends with an exception is not compared with the gold answer",
    ),
    some(
        "",
        "/item/Answer",
        raises,
        "a run that ends with an exception is not compared with the gold answer",
    ),
    some("", "/script/plan/*", is_behind_the_end, "the original continues after the end"),
    some("", "/script/ground/*", is_behind_the_end, "the original continues after the end"),
    some("", "/prompts/plan/*", is_behind_the_end, "the original continues after the end"),
    some("", "/prompts/ground/*", is_behind_the_end, "the original continues after the end"),
    some(
        "",
        "/tools…",
        is_failed,
        "a failed item has no values, and the original continues to call tools after the failure",
    ),
    some("", "/tools…", raises, "a run that ends with an exception records no values"),
    some("", "/script/ground/*", raises, "a run that ends with an exception records no actions"),
    some("", "/script/ground/*", is_failed_at_once, "a failed item records no actions"),
    some("", "/tools/*/output", is_overwritten, "a later action overwrites the variable"),
    some("", "/tools/*/output/*", is_elsewhere, "only Wikipedia pages are opened"),
    some("", "/tools/*/output/*", is_alone, "a single passage has the same rank with any score"),
    all("", "/tools/*/raises", "the original handles all exceptions in the same way"),
    some("", "/tools/*/output/*", is_asked_again, "a list is skipped, whatever it contains"),
    all("mind2web", "/mutations/*", "describes the mutation"),
    all(
        "mind2web",
        "/discarded_calls…",
        "rankings that the original discards, and that lumos does not request",
    ),
    all("mind2web", "/item/annotation_id", "the task's name"),
    all("mind2web", "/item/website", "the task's group, which the agent does not see"),
    all("mind2web", "/item/domain", "the task's group, which the agent does not see"),
    all("mind2web", "/item/subdomain", "the task's group, which the agent does not see"),
    all("mind2web", "/item/actions/*/action_uid", "the step's name"),
    all("mind2web", "/item/actions/*/pos_candidates/*/tag", "the element is found by its id on the page"),
    all("mind2web", "/item/actions/*/neg_candidates/*/tag", "the element is found by its id on the page"),
    all(
        "mind2web",
        "/item/actions/*/pos_candidates/*/attributes",
        "the element is found by its id on the page",
    ),
    all(
        "mind2web",
        "/item/actions/*/neg_candidates/*/attributes",
        "the element is found by its id on the page",
    ),
    some("mind2web", "/item/actions/*…", is_not_looked_at, "no action was executed there"),
    some("mind2web", "/item/action_reprs/*", is_never_told, "the planner sees only the preceding steps"),
    some("mind2web", "/script/ground/*", ends_the_run, "any reply without a known variable ends the run"),
    all("webshop", "/mutation", "describes the mutation"),
    some("webshop", "/script…", has_no_prompt, "the original continues after the end"),
    some(
        "webshop",
        "/tools/*/output/*",
        is_not_read,
        "two products are read from a page; others matter only if they are clicked",
    ),
    some(
        "webshop",
        "/script/ground/*",
        is_dropped,
        "an action that cannot be parsed ends the item, whatever it contains",
    ),
    some(
        "webshop",
        "/tools/*/output/*",
        is_noun,
        "the reward's type factor counts shared nouns in coarse steps",
    ),
    some("sql episode", "/max_turns", is_broken_off, "the run was aborted before the limit"),
    some("sql episode", "/dialogue_limit", is_never_reached, "no conversation is that long"),
    some("sql episode", "/tools/*/error/msg", is_of_gold, "the failure is shown, not its message"),
    all("sql episode", "/tools/*/error/type", "the driver's error class is not shown"),
    all("sql log", "/run", "the run's name, of which only the number of turns is compared"),
    some(
        "sql log",
        "/turn_history/actions/*",
        gave_rows,
        "the tables are not recorded, so only the number of columns is compared",
    ),
    some(
        "sql log",
        "/turn_history/actions/*",
        failed,
        "an error describes one property of a statement, which is compared",
    ),
    some("sql log", "/turn_history/actions/*", has_no_code, "a reply without code is logged unchanged"),
    some(
        "sql log",
        "/turn_history/observations/*",
        gave_rows,
        "the tables are not recorded, so only the form of the rows, the reward in a solved episode and equal statements are compared",
    ),
    some("sql log", "/turn_history/observations/*", failed, "some errors do not depend on the statement"),
    some(
        "sql log",
        "/turn_history/rewards/*",
        is_unsolved,
        "the gold rows are not recorded without a solved turn",
    ),
];
