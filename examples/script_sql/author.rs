//! A scripted agent with the gold query. It lists the tables, runs the query and submits its result.

use std::error::Error;
use std::sync::Arc;

use lumos_benchmarks::{Benchmark, replay};
use lumos_tasks::recorded::{Case, Expected, RecordedCall, Script};
use lumos_tasks::{
    ChatReply, Completion, Episode, Formulation, Item, Next, Reply, Role, ToolReply, WorkUnit,
};

/// Returns the agent's replies for an item as a case without an outcome, up to the first statement.
pub(crate) fn case(
    benchmark: &dyn Benchmark,
    item: &Item,
    formulation: Formulation,
) -> Result<Case, Box<dyn Error>> {
    let configuration = replay::configuration(benchmark, formulation, Vec::new());
    let gold = item.target.text().trim().trim_end_matches(';');
    let unit = WorkUnit::new(item.id.clone(), item.task.clone(), item.setup.clone(), Arc::new(configuration));
    let mut episode = Episode::start(&unit);
    let (mut script, mut prompts, mut tools) = (Script::default(), Script::default(), Vec::new());
    loop {
        let reply = match episode.next() {
            Next::Generate(request) => {
                let text = match request.role {
                    Role::Planner => "Subgoal 1: Write the query.".to_owned(),
                    _ => format!("R1 = ListTables(); R2 = ExecuteSQL({gold}); R3 = Submit(R2)"),
                };
                prompts.push(request.role, request.prompt());
                script.push(request.role, &text);
                Reply::Completion(Completion::recorded(text))
            }
            Next::Call(call) if call.tool() != "sql" => {
                let reply = ToolReply::Chat(ChatReply::recorded(format!("```sql\n{gold}\n```")));
                tools.push(RecordedCall::of(call, &reply));
                Reply::Tool(reply)
            }
            Next::Call(_) | Next::Done => break,
        };
        episode.feed(reply)?;
    }
    Ok(Case {
        id: unit.id.as_str().to_owned(),
        benchmark: benchmark.name().to_owned(),
        formulation,
        tags: Vec::new(),
        item: item.record.clone(),
        script,
        prompts,
        tools,
        effective_turns: None,
        expected: Expected::default(),
        randint: Vec::new(),
    })
}
