//! Compares the SQL environment with the original's recorded behaviour, if `LUMOS_SHARED` names a folder that
//! contains it.

use std::fs::File;
use std::io::Read;

use flate2::read::GzDecoder;
use lumos_environments::sql::guard::check;
use lumos_environments::sql::{Cell, Fetched, Grade, Row, SqlObservation, World, reward, row_text};
use serde_json::Value;

/// Reads the rows of a recorded file. Returns `None`, with a note, if `LUMOS_SHARED` is not set.
fn recorded(name: &str) -> Option<Vec<Value>> {
    let path = lumos_capabilities::shared("golden/intercode_sql")?.join(format!("{name}.jsonl.gz"));
    let mut text = String::new();
    GzDecoder::new(File::open(&path).unwrap()).read_to_string(&mut text).unwrap();
    Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn numbers<const COUNT: usize>(text: &str) -> [u32; COUNT] {
    let mut numbers =
        text.split(|character: char| !character.is_ascii_digit()).map(|part| part.parse().unwrap_or(0));
    std::array::from_fn(|_| numbers.next().unwrap_or(0))
}

fn cell(value: &Value) -> Cell {
    let (Some(kind), Some(written)) = (value.get("t").and_then(Value::as_str), value.get("v")) else {
        return match value {
            Value::Null => Cell::Null,
            Value::Bool(value) => Cell::Boolean(*value),
            Value::Number(number) => Cell::Integer(number.to_string().parse().unwrap()),
            Value::String(text) => Cell::Text(text.clone()),
            other => panic!("{other}"),
        };
    };
    let text = written.as_str().unwrap_or_default();
    let date = |numbers: &[u32]| {
        (
            u16::try_from(numbers[0]).unwrap(),
            u8::try_from(numbers[1]).unwrap(),
            u8::try_from(numbers[2]).unwrap(),
        )
    };
    match kind {
        "float" => Cell::Float(text.parse().unwrap()),
        "decimal" => Cell::Decimal(text.to_owned()),
        "bytes" | "bytearray" => {
            let pairs = text.as_bytes().chunks(2).map(|pair| std::str::from_utf8(pair).unwrap());
            Cell::Bytes(pairs.map(|pair| u8::from_str_radix(pair, 16).unwrap()).collect())
        }
        "date" => {
            let (year, month, day) = date(&numbers::<3>(text));
            Cell::Date { year, month, day }
        }
        "datetime" => {
            let parts = numbers::<7>(text);
            let (year, month, day) = date(&parts);
            let second_of_day = parts[3] * 3600 + parts[4] * 60 + parts[5];
            Cell::DateTime { year, month, day, second_of_day, microsecond: parts[6] }
        }
        "timedelta" => {
            let part = |index: usize| written[index].as_i64().unwrap();
            Cell::Duration {
                days: part(0),
                seconds: u32::try_from(part(1)).unwrap(),
                microseconds: u32::try_from(part(2)).unwrap(),
            }
        }
        other => panic!("{other}"),
    }
}

fn rows(value: &Value) -> Vec<Row> {
    value["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row.as_array().unwrap().iter().map(cell).collect())
        .collect()
}

/// Returns the result of a recorded statement or observation. The text of an error has no prefix.
fn fetched(value: &Value) -> Fetched {
    if let Some(message) = value.pointer("/error/msg").and_then(Value::as_str) {
        return Fetched::Failed { message: message.to_owned() };
    }
    let output = if value.get("tool").is_some() { &value["output"] } else { value };
    if output["rows"].is_array() {
        return Fetched::Rows(rows(output));
    }
    match output["kind"].as_str() {
        Some("text") => Fetched::Failed {
            message: output["printed"]
                .as_str()
                .unwrap()
                .trim_start_matches("Error executing query: ")
                .to_owned(),
        },
        _ => Fetched::Nothing,
    }
}

fn printed(rows: &[Row]) -> Vec<String> {
    rows.iter().map(|row| row_text(row)).collect()
}

fn report(name: &str, total: usize, failures: &[String], at_least: f64) {
    println!("{name}: {} of {total} equal", total - failures.len());
    assert!(
        total > 0 && (total - failures.len()) as f64 >= at_least * total as f64,
        "{}",
        failures.join("\n")
    );
}

/// Whether two intermediate figures of a reward agree; the rewards themselves are compared exactly.
fn close(left: Option<f64>, right: Option<f64>) -> bool {
    match (left, right) {
        (Some(left), Some(right)) => (left - right).abs() < 1e-9,
        (left, right) => left.is_none() && right.is_none(),
    }
}

#[test]
fn rewards() {
    let Some(cases) = recorded("reward") else { return };
    let mut failures = Vec::new();
    for case in &cases {
        let expected = &case["expected"];
        let mut world = World::default();
        match case["agent"]["kind"].as_str() {
            Some("text") => {
                let text = case["agent"]["printed"].as_str().unwrap().to_owned();
                world = World::showing(SqlObservation::Text(text));
            }
            _ => {
                world.executed(fetched(&case["agent"]));
            }
        }
        let gold = match case["gold_error"].as_str() {
            Some(message) => Fetched::Failed { message: message.to_owned() },
            None => fetched(&case["gold"]),
        };
        let grade = world.grade("", &gold);
        let agrees = Some(grade.reward) == expected["reward"].as_f64()
            && Some(grade.corrupt_gold) == expected["corrupt_gold"].as_bool()
            && close(grade.parts.and_then(|parts| parts.tau), expected["kendall_tau"].as_f64())
            && Some(grade.reward == 1.0) == expected["success"].as_bool()
            && world.observation().printed() == expected["agent_obs"].as_str().unwrap()
            && grade.parts.is_none_or(|parts| {
                Some(parts.union) == expected["total_union"].as_u64()
                    && Some(parts.intersection) == expected["total_intersection"].as_u64()
            });
        if !agrees {
            failures.push(format!("{}: {grade:?}, recorded is {expected}", case["id"]));
        }
        for side in [&case["agent"], &case["gold"]] {
            if side["rows"].is_array() {
                assert_eq!(
                    serde_json::to_value(printed(&rows(side))).unwrap(),
                    side["row_strings"],
                    "{}",
                    case["id"]
                );
            }
        }
    }
    report("reward", cases.len(), &failures, 1.0);
}

/// Executes an action. Returns the observation, the reward, whether the item ends, the grade, and whether a
/// statement was executed.
fn step(
    world: &mut World,
    step: &Value,
    gold_query: &str,
) -> (String, f64, bool, Option<Grade>, Option<bool>) {
    let call = &step["tools"][0];
    match step["action"].as_str().unwrap() {
        "skip" => ("skipped".to_owned(), 0.0, true, None, None),
        action if action.starts_with("submit") => {
            let grade = world.grade(gold_query, &fetched(call));
            (world.observation().printed(), grade.reward, true, Some(grade), Some(true))
        }
        _ => {
            let executed = world.executed(fetched(call));
            (world.observation().printed(), 0.0, false, None, Some(executed))
        }
    }
}

#[test]
fn environment_steps() {
    let Some(cases) = recorded("env_steps") else { return };
    let (mut failures, mut total) = (Vec::new(), 0);
    for case in &cases {
        let mut world = World::default();
        assert_eq!(world.observation().printed(), case["reset"]["observation"]["printed"].as_str().unwrap());
        for (index, recorded) in case["steps"].as_array().unwrap().iter().enumerate() {
            total += 1;
            let gold_query = case["gold_sql"].as_str().unwrap();
            let (shown, reward, done, grade, executed) = step(&mut world, recorded, gold_query);
            let info = &recorded["info"];
            let agrees = Some(shown.as_str()) == recorded["observation"]["printed"].as_str()
                && Some(reward) == recorded["reward"].as_f64()
                && Some(done) == recorded["done"].as_bool()
                && executed == info["action_executed"].as_bool()
                && grade.is_none_or(|grade| {
                    Some(grade.corrupt_gold) == info["corrupt_gold"].as_bool()
                        && Some(format!("[{}]", grade.gold.join(", ")).as_str()) == info["eval_obs"].as_str()
                });
            if !agrees {
                failures.push(format!("{} step {index}: {shown} {reward} {done}", case["id"]));
            }
        }
    }
    report("env_steps", total, &failures, 0.99);
}

/// Returns the rows of a printed result.
fn printed_rows(text: &str) -> Option<Vec<String>> {
    match SqlObservation::of_printed(text) {
        SqlObservation::Rows(rows) => Some(rows),
        SqlObservation::None | SqlObservation::Text(_) => None,
    }
}

#[test]
fn published_rewards() {
    let Some(cases) = recorded("published_episodes") else { return };
    let (mut failures, mut total) = (Vec::new(), 0);
    for case in &cases {
        let history = &case["turn_history"];
        let (observations, rewards) =
            (history["observations"].as_array().unwrap(), history["rewards"].as_array().unwrap());
        // The gold rows are those of an observation with the reward 1.
        let solved = observations.iter().zip(rewards).find(|(_, reward)| reward.as_f64() == Some(1.0));
        let gold = solved.and_then(|(shown, _)| printed_rows(shown.as_str()?));
        for (shown, recorded) in observations.iter().zip(rewards) {
            let got = match (printed_rows(shown.as_str().unwrap()), &gold) {
                (Some(rows), Some(gold)) => reward(&rows, gold).value,
                (Some(_), None) => continue,
                (None, _) => 0.0,
            };
            total += 1;
            if Some(got) != recorded.as_f64() {
                failures.push(format!("{}: {got}, recorded is {recorded}: {shown}", case["id"]));
            }
        }
    }
    report("published rewards", total, &failures, 0.0);
    println!("{}", failures.join("\n"));
}

/// The guard accepts everything that the original's server executed, except several statements at once
/// (docs/fidelity.md).
#[test]
fn statements_that_were_carried_out_pass_the_guard() {
    let (Some(steps), Some(published)) = (recorded("env_steps"), recorded("published_episodes")) else {
        return;
    };
    let mut seen = 0;
    let mut judge = |action: &str, observation: &Value| {
        let printed = observation["printed"].as_str().unwrap_or_default();
        if printed.starts_with("Error executing query") || action == "skip" || action.starts_with("submit") {
            return;
        }
        seen += 1;
        let judged = check(action);
        if judged.as_ref().is_err_and(|refused| refused.contains("Only one statement")) {
            return;
        }
        assert!(judged.is_ok() || printed == "None", "{action:?}: {judged:?}, recorded {printed:?}");
    };
    for case in &steps {
        for step in case["steps"].as_array().unwrap() {
            judge(step["action"].as_str().unwrap(), &step["observation"]);
        }
    }
    for case in &published {
        let history = &case["turn_history"];
        let (actions, observations) = (&history["actions"], &history["observations"]);
        for (action, observation) in actions.as_array().unwrap().iter().zip(observations.as_array().unwrap())
        {
            judge(action.as_str().unwrap(), observation);
        }
    }
    assert!(seen > 300, "{seen}");
}
