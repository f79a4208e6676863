//! The benchmark `stamps`: word problems made of two numbers, for an agent whose only action calls the tool `abacus`.

use std::sync::Arc;

use lumos_eval::benchmarks::task_file::{TaskDefinition, TaskFamily};
use lumos_eval::benchmarks::{
    BenchmarkBuilder, Content, ItemScore, MetricDefinition, MetricKind, RecordError, Share, Unit, prediction,
};
use lumos_eval::tasks::families::agent::{ActionDefinition, AgentDefinition, ArgumentDefinition};
use serde_json::Value;

const SOLVED: MetricDefinition =
    MetricDefinition::proportion("solved", "share of items with the right number");

const DISTANCE: MetricDefinition = MetricDefinition {
    kind: MetricKind::BoundedMean { least: 0.0, most: FARTHEST },
    unit: Unit::Count("stamps"),
    higher_is_better: false,
    ..MetricDefinition::proportion("distance", "distance of the answer from the right number")
};

/// The distance of an answer that is not a number, or farther away.
const FARTHEST: f64 = 100.0;

pub(crate) fn stamps() -> BenchmarkBuilder {
    let calculator = ActionDefinition {
        name: "Calculator".to_owned(),
        description: "Calculate the input formula.".to_owned(),
        arguments: vec![ArgumentDefinition::Name("formula".to_owned())],
        tool: Some("abacus".to_owned()),
        ..ActionDefinition::default()
    };
    let mut definition = TaskDefinition::new("stamps", TaskFamily::Custom, "stamps/items.jsonl");
    definition.title = Some("Stamps".to_owned());
    definition.max_rounds = Some(4);
    definition.agent =
        Some(Arc::new(AgentDefinition { actions: vec![calculator], ..AgentDefinition::default() }));
    // The backend of runs without `--tool abacus=…`.
    definition.tools.insert("abacus".to_owned(), "integers".to_owned());
    BenchmarkBuilder::new(definition).version(1).samples(include_bytes!("../items.jsonl")).read(read).score(
        vec![SOLVED, DISTANCE],
        |target, outcome, _| {
            let number = |text: &str| text.trim().parse::<f64>().ok();
            let answer = prediction(outcome).and_then(number);
            let distance = answer.zip(number(target.text())).map(|(answer, gold)| (answer - gold).abs());
            let distance = Share { numerator: distance.unwrap_or(FARTHEST).min(FARTHEST), denominator: 1.0 };
            ItemScore::met(SOLVED.name, distance.numerator == 0.0).with(DISTANCE.name, distance)
        },
    )
}

/// Reads a record: `{"name": "Mira", "had": 3, "got": 5}`.
fn read(record: &Value) -> Result<Content, RecordError> {
    let [had, got] = [number(record, "had")?, number(record, "got")?];
    let name = record["name"].as_str().unwrap_or("Mira");
    let question = format!("{name} has {had} stamps and buys {got} more. How many stamps does {name} have?");
    Ok(Content::question(question, (had + got).to_string()))
}

fn number(record: &Value, field: &'static str) -> Result<u32, RecordError> {
    let number = record[field].as_u64().and_then(|number| u32::try_from(number).ok());
    number.filter(|number| *number < 1_000_000).ok_or_else(|| {
        RecordError::new(field, "a whole number below 1000000", record[field].to_string(), "ValueError")
    })
}
