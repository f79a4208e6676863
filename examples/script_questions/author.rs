//! A scripted agent for question answering. It looks up the names in a question one by one, and answers with the first
//! name in the best evidence. Its replies depend only on the question and the evidence.

use std::error::Error;
use std::sync::Arc;

use lumos_benchmarks::replay;
use lumos_tasks::recorded::Case;
use lumos_tasks::{
    ChatReply, Completion, Configuration, Episode, Formulation, Item, Next, Reply, Role, Task, ToolCall,
    ToolReply, WorkUnit,
};
use lumos_tools::Tools;

/// Maximum number of names that are looked up for a question.
const MOST_NAMES: usize = 2;

/// Runs the episode of an item and returns it as a recorded case.
pub(crate) async fn case(
    item: &Item,
    configuration: &Arc<Configuration>,
    tools: &dyn Tools,
) -> Result<Case, Box<dyn Error>> {
    let Task::Qa { question, .. } = &item.task else { return Err("not a question-answering item".into()) };
    let agent = Agent::of(question, configuration.formulation);
    let unit =
        WorkUnit::new(item.id.clone(), item.task.clone(), item.setup.clone(), Arc::clone(configuration));
    let mut episode = Episode::start(&unit);
    let (mut planned, mut grounded) = (0, 0);
    loop {
        let reply = match episode.next() {
            Next::Done => break,
            Next::Generate(request) => {
                let text = match request.role {
                    Role::Planner => agent.plan(&mut planned),
                    Role::Grounder => agent.ground(&mut grounded),
                    role => return Err(format!("unsupported role: {role}").into()),
                };
                Reply::Completion(Completion::recorded(text))
            }
            Next::Call(ToolCall::Chat { messages, .. }) => {
                let asked = messages.last().map_or("", |message| message.content.as_str());
                Reply::Tool(ToolReply::Chat(ChatReply::recorded(answer(asked))))
            }
            Next::Call(call) => Reply::Tool(tools.call(call).await?),
        };
        episode.feed(reply)?;
    }
    Ok(replay::record(item, &unit, &episode.finish())?)
}

/// The agent for one question.
struct Agent {
    question: String,
    names: Vec<String>,
    formulation: Formulation,
}

impl Agent {
    fn of(question: &str, formulation: Formulation) -> Self {
        // Actions are separated by `; ` and variables look like `R1`.
        let question = question.replace(';', ",");
        let mut names = names(&question);
        names.truncate(MOST_NAMES);
        if names.is_empty() {
            names.push(question.trim_end_matches('?').to_owned());
        }
        Self { question, names, formulation }
    }

    fn subgoal(&self, index: usize) -> String {
        let name = self.names.get(index).map_or("", String::as_str);
        format!("Subgoal {}: Find what is known about {name}.", index + 1)
    }

    fn plan(&self, turn: &mut usize) -> String {
        let index = *turn;
        *turn += 1;
        if self.formulation == Formulation::OneTime {
            return (0..self.names.len()).map(|index| self.subgoal(index)).collect::<Vec<_>>().join("; ");
        }
        match index {
            0 => self.subgoal(0),
            _ if index < self.names.len() => format!("No, I will keep planning. {}", self.subgoal(index)),
            _ => "Yes, I will stop planning.".to_owned(),
        }
    }

    fn ground(&self, turn: &mut usize) -> String {
        let index = *turn;
        *turn += 1;
        if self.formulation == Formulation::OneTime {
            return (0..self.names.len()).map(|index| self.actions(index)).collect::<Vec<_>>().join("; ");
        }
        self.actions(index)
    }

    fn actions(&self, index: usize) -> String {
        let Self { question, names, .. } = self;
        let name = names.get(index).map_or("", String::as_str);
        let (page, passages, answer) = (3 * index + 1, 3 * index + 2, 3 * index + 3);
        format!(
            "R{page} = KnowledgeQuery({name}); R{passages} = ParagraphRetrieve(R{page}, Query: {question}); \
             R{answer} = QA([R{passages}], Question: {question})"
        )
    }
}

/// Returns the QA tool's answer: the first name in the best evidence that is not in the question. Without evidence, it
/// answers only questions that begin in the first half of the alphabet, so that the others lead to a search.
fn answer(asked: &str) -> String {
    let question = asked.split("Question: ").nth(1).unwrap_or_default();
    let (question, context) = question.split_once("\nContext: ").unwrap_or((question, ""));
    let found =
        names(context).into_iter().find(|name| !name.starts_with("Evidence") && !question.contains(name));
    match found {
        Some(name) => format!("Answer: {name}"),
        None if context.is_empty() && question.to_lowercase().as_str() < "n" => "Answer: yes".to_owned(),
        None => "No answer".to_owned(),
    }
}

/// Returns the sequences of capitalised words, without a short first word of the text.
fn names(text: &str) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    let mut name: Vec<&str> = Vec::new();
    for (index, word) in text.split_whitespace().chain([""]).enumerate() {
        let bare = word.trim_matches(|character: char| !character.is_alphanumeric());
        let capital = bare.chars().next().is_some_and(char::is_uppercase);
        if capital && !(index == 0 && bare.len() < 6) {
            name.push(bare);
        }
        let ends = !capital || word.ends_with(['.', ',', '?', '!', ':', ')']);
        if ends && !name.is_empty() {
            let whole = std::mem::take(&mut name).join(" ");
            if !names.contains(&whole) {
                names.push(whole);
            }
        }
    }
    names
}
