//! Values for tests.

use std::collections::BTreeMap;

use lumos_tasks::{
    Behaviour, Configuration, ContentHash, Formulation, GenerationSettings, Item, ItemId, ModelIdentity,
    Role, Setup, Target, Task,
};

/// The item at a position.
pub(crate) fn item(index: u64) -> Item {
    let question = format!("Tom has {index} apples and buys 2 more. How many apples has he?");
    let answer = (index + 2).to_string();
    let record = serde_json::json!({"question": question, "answer": answer});
    Item {
        id: ItemId { content: ContentHash::of_json(&record), occurrence: 0 },
        index,
        name: Some(format!("item-{index}")),
        group: Some(if index % 2 == 0 { "Addition" } else { "Subtraction" }.to_owned()),
        task: Task::Maths { question },
        setup: Setup::None,
        target: Target::Number { answer },
        record,
    }
}

/// A configuration with a seed.
pub(crate) fn configuration(seed: u64) -> Configuration {
    let model = |name: &str| ModelIdentity {
        name: format!("candle:models/{name}"),
        content: ContentHash::of_bytes(name.as_bytes()),
        dtype: Some("f32".to_owned()),
    };
    Configuration {
        benchmark: "svamp".to_owned(),
        formulation: Formulation::Iterative,
        behaviour: Behaviour::Paper,
        max_rounds: 2,
        models: BTreeMap::from([(Role::Planner, model("planner")), (Role::Grounder, model("grounder"))]),
        tools: Vec::new(),
        generation: GenerationSettings::default(),
        seed,
        prompts: ContentHash::of_bytes(b"prompts"),
    }
}
