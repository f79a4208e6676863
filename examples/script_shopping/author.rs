//! A scripted customer. It searches for its instruction, opens the first two items found, picks one of them with the
//! ranking tool, selects the features that the ranking tool found best and buys the item.

use std::error::Error;
use std::sync::Arc;

use lumos_benchmarks::replay;
use lumos_tasks::recorded::Case;
use lumos_tasks::{
    Completion, Configuration, Episode, Item, Next, Reply, Role, Task, ToolCall, ToolReply, WorkUnit,
};
use lumos_tools::Tools;

/// Runs the episode of an item and returns it as a recorded case.
pub(crate) async fn case(
    item: &Item,
    configuration: &Arc<Configuration>,
    tools: &dyn Tools,
) -> Result<Case, Box<dyn Error>> {
    let Task::Shop { instruction, .. } = &item.task else { return Err("not a shopping item".into()) };
    let unit =
        WorkUnit::new(item.id.clone(), item.task.clone(), item.setup.clone(), Arc::clone(configuration));
    let session = tools.open(&unit).await?.ok_or("failed to open a session for the item")?;
    let mut customer = Customer { instruction: instruction.clone(), ..Customer::default() };
    let mut episode = Episode::start(&unit);
    loop {
        let reply = match episode.next() {
            Next::Done => break,
            Next::Generate(request) => Reply::Completion(Completion::recorded(match request.role {
                Role::Planner => customer.plan(),
                Role::Grounder => customer.ground(),
                role => return Err(format!("unsupported role: {role}").into()),
            })),
            Next::Call(call) => {
                let reply = session.call(call).await?;
                customer.see(call, &reply);
                Reply::Tool(reply)
            }
        };
        episode.feed(reply)?;
    }
    session.close().await;
    Ok(replay::record(item, &unit, &episode.finish())?)
}

/// The customer with its observations.
#[derive(Default)]
struct Customer {
    instruction: String,
    planned: usize,
    grounded: usize,
    items: Vec<String>,
    /// The best passages of the last ranking.
    best: Vec<String>,
    /// The features of each item.
    features: Vec<Vec<String>>,
}

impl Customer {
    fn item(&self, index: usize) -> &str {
        self.items.get(index).or(self.items.first()).map_or("back to search", String::as_str)
    }

    fn plan(&mut self) -> String {
        self.planned += 1;
        let number = self.planned;
        let subgoal = match number {
            1 => "Search two relevant items and the product names according to the instruction.".to_owned(),
            2 | 3 => format!("Select the most relevant features of item {}.", self.item(number - 2)),
            4 => {
                "Pick up the most related one from the two relevant items according to the product names and \
                  their features."
                    .to_owned()
            }
            _ => "Buy this item by selecting its relevant features.".to_owned(),
        };
        format!("Subgoal {number}: {subgoal}")
    }

    fn ground(&mut self) -> String {
        self.grounded += 1;
        let query = self.instruction.replace(';', ",");
        let (first, second) = (self.item(0), self.item(1));
        match self.grounded {
            1 => format!("Search({query})."),
            2 => format!("R2 = Click({first}); R3 = FeatureRetrieve(R2, Query: {query})."),
            3 => {
                format!("R4 = Click(< prev); R5 = Click({second}); R6 = FeatureRetrieve(R5, Query: {query}).")
            }
            4 => format!("R7 = Pick(Item_names: R1, Item_features: [R3, R6], Query: {query})."),
            _ => {
                let picked = self.best.first().and_then(|best| best.split(" - ").next()).unwrap_or(first);
                let index = usize::from(picked == second && first != second);
                let chosen = self.features.get(index).into_iter().flatten();
                let clicks: Vec<String> = chosen
                    .enumerate()
                    .map(|(index, feature)| format!("R{} = Click({feature}); ", index + 10))
                    .collect();
                format!("R8 = Click(< prev); R9 = Click(R7); {}R20 = Click(buy now)", clicks.concat())
            }
        }
    }

    fn see(&mut self, call: &ToolCall, reply: &ToolReply) {
        match (call, reply) {
            (ToolCall::Shop(_), ToolReply::Shop(page)) if self.items.is_empty() => {
                self.items = page.clickables.iter().skip(2).take(2).cloned().collect();
            }
            (ToolCall::Rank { passages, .. }, ToolReply::Rank(scores)) => {
                let mut order: Vec<usize> = (0..scores.len()).collect();
                order.sort_by(|left, right| scores[*left].total_cmp(&scores[*right]));
                order.reverse();
                self.best = order.into_iter().take(3).map(|index| passages[index].text.clone()).collect();
                self.features.push(self.best.clone());
            }
            _ => {}
        }
    }
}
