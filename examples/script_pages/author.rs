//! A scripted agent for Mind2Web that performs the gold actions and names elements in given words.

use std::error::Error;
use std::sync::Arc;

use lumos_benchmarks::replay;
use lumos_tasks::recorded::Case;
use lumos_tasks::{Completion, Configuration, Episode, Item, Next, Reply, Role, Target, WorkUnit};
use lumos_tools::Tools;

/// Runs the episode of a task and returns it as a recorded case. `words` returns the name of a step's element.
pub(crate) async fn case(
    item: &Item,
    configuration: &Arc<Configuration>,
    tools: &dyn Tools,
    words: fn(&Item, usize) -> Option<String>,
) -> Result<Case, Box<dyn Error>> {
    let Target::Web { steps, .. } = &item.target else { return Err("not a web task".into()) };
    let unit =
        WorkUnit::new(item.id.clone(), item.task.clone(), item.setup.clone(), Arc::clone(configuration));
    let session = tools.open(&unit).await?.ok_or("failed to open a session for the item")?;
    let mut episode = Episode::start(&unit);
    loop {
        let step = episode.turn() as usize - 1;
        let reply = match episode.next() {
            Next::Done => break,
            Next::Generate(request) if request.role == Role::Planner => {
                Reply::Completion(Completion::recorded(format!("Subgoal {}: Go on", step + 1)))
            }
            Next::Generate(_) => {
                let page = if step == 0 { "Env".to_owned() } else { format!("R{step}") };
                let gold = steps.get(step).ok_or("the episode has more turns than the task has steps")?;
                let query = words(item, step).ok_or("missing words for a step")?;
                let text = match gold.operation.as_str() {
                    "CLICK" => String::new(),
                    _ => format!(", TEXT: {}", gold.value),
                };
                let action = format!("R{} = {}({page}, QUERY: {query}{text})", step + 1, gold.operation);
                Reply::Completion(Completion::recorded(action))
            }
            Next::Call(call) => Reply::Tool(session.call(call).await?),
        };
        episode.feed(reply)?;
    }
    session.close().await;
    Ok(replay::record(item, &unit, &episode.finish())?)
}

/// Returns the words of a step's gold element in the task's representation.
pub(crate) fn gold_words(item: &Item, step: usize) -> Option<String> {
    let Target::Web { words, .. } = &item.target else { return None };
    let element = words.split("; ").nth(step)?.split(" -> ").next()?;
    Some(element.rsplit(']').next()?.trim().to_owned())
}
