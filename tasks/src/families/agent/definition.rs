//! [`AgentDefinition`]: what an agent is asked, and what its actions do.

use serde::{Deserialize, Serialize};

use super::problems;
use crate::families::prompts::{NO_ENVIRONMENT, PLAN, plan_in};
use crate::families::worked_examples::WorkedExample;
use crate::identity::ContentHash;
use crate::request::Role;

/// An agent that plans, grounds and executes, described by data.
///
/// ```
/// use lumos_tasks::families::agent::AgentDefinition;
///
/// let json = r#"{"actions": [
///     {"name": "Forecast", "arguments": ["city"], "description": "Weather of tomorrow.", "tool": "weather"},
///     {"name": "Calculator", "arguments": ["formula"], "description": "Compute.", "tool": "maths"}
/// ]}"#;
/// let agent: AgentDefinition = serde_json::from_str(json)?;
/// assert!(agent.problems().is_empty());
/// assert_eq!(agent.tools(), ["maths", "weather"]);
/// assert!(agent.ground().contains("Forecast(city): Weather of tomorrow; Calculator(formula): Compute.\n"));
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct AgentDefinition {
    /// The planner's instruction. Default: the published one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub plan: Option<String>,
    /// The planner's description of the environment. Default: `None`, as published.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub environment: Option<String>,
    /// The grounder's instruction, which lists the actions. Default: the published one with this agent's actions.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ground: Option<String>,
    /// Which results of earlier subgoals the grounder is shown.
    pub results: ShownResults,
    /// What the prediction of an iterative episode is.
    pub answer: FinalAnswer,
    /// Whether behaviour `paper` reproduces the bugs of the published question-answering scripts. Without it, both
    /// behaviours are the corrected one.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub paper_quirks: bool,
    /// The actions.
    pub actions: Vec<ActionDefinition>,
    /// Solved tasks, for models that were not trained on the conversations.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub examples: Vec<WorkedExample>,
}

/// An action of an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActionDefinition {
    /// Name in the grounder's replies: letters, digits and `_`.
    pub name: String,
    /// Description for the grounder.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub description: String,
    /// The arguments in order.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub arguments: Vec<ArgumentDefinition>,
    /// The tool that executes it: `maths`, `wiki`, `rank`, `qa`, or the name of a tool that is not built in. Without
    /// one, the action is listed but not executed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool: Option<String>,
    /// The tool's operation. Default: the action's name, or the first operation of a built-in tool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub call: Option<String>,
    /// How a result becomes a value: a text in which `{}` is the result, and `{a.b}` a field of a JSON result.
    /// Default: `{}`. For tools that are not built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<String>,
    /// Maximum length of a value in characters. Default: [`ActionDefinition::USUAL_CHARACTERS`]. For tools that are not
    /// built in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub most_characters: Option<usize>,
}

/// An argument of an action: its name, or a table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ArgumentDefinition {
    /// A required text.
    Name(String),
    /// An argument with a type.
    Typed {
        /// The argument's name.
        name: String,
        /// The type of its value.
        #[serde(rename = "type", default)]
        kind: ArgumentType,
        /// Whether it can be left out.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        optional: bool,
    },
}

/// Type of an argument.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArgumentType {
    /// A text.
    #[default]
    String,
    /// A whole number.
    Integer,
    /// A number.
    Number,
    /// True or false.
    Boolean,
    /// Any JSON value.
    Json,
}

/// Which results of earlier subgoals the grounder is shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShownResults {
    /// None.
    None,
    /// Answers of the question-answering tool, as in the published agent.
    Answers,
    /// The result of every subgoal.
    #[default]
    All,
}

/// What the prediction of an iterative episode is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalAnswer {
    /// The value of the last action.
    #[default]
    Last,
    /// The reply of the question-answering model to the whole question, given all answers found before.
    Ask,
}

/// What a built-in tool does for an action.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Operation {
    /// `maths`: the value of a formula.
    Formula,
    /// `wiki`: passages of a page.
    Pages,
    /// `rank`: the passages that are most relevant to a query.
    Retrieve,
    /// `qa`: an answer from a context.
    Answer,
    /// `qa`, `calculate`: an answer from values.
    Calculate,
    /// A tool that is not built in.
    External,
}

impl Operation {
    /// The built-in operations by tool; the first of a tool is its default.
    pub(super) const BUILT_IN: [(&str, &str, Self); 5] = [
        ("maths", "calculate", Self::Formula),
        ("wiki", "pages", Self::Pages),
        ("rank", "retrieve", Self::Retrieve),
        ("qa", "answer", Self::Answer),
        ("qa", "calculate", Self::Calculate),
    ];

    /// Tools that only their own families can use, because they need a session.
    pub(super) const WITH_SESSIONS: [&str; 3] = ["shop", "sql", "web"];
}

impl ArgumentDefinition {
    /// The name.
    pub fn name(&self) -> &str {
        match self {
            Self::Name(name) | Self::Typed { name, .. } => name,
        }
    }

    /// The type.
    pub fn kind(&self) -> ArgumentType {
        match self {
            Self::Name(_) => ArgumentType::String,
            Self::Typed { kind, .. } => *kind,
        }
    }

    /// Whether it can be left out.
    pub fn is_optional(&self) -> bool {
        matches!(self, Self::Typed { optional: true, .. })
    }
}

impl ActionDefinition {
    /// Default of [`ActionDefinition::most_characters`].
    pub const USUAL_CHARACTERS: usize = 2000;

    /// What executes it; `None` if it is listed only, or if the tool has no such operation.
    pub(crate) fn operation(&self) -> Option<Operation> {
        let tool = self.tool.as_deref()?;
        let mut of_tool = Operation::BUILT_IN.iter().filter(|(name, ..)| *name == tool).peekable();
        if of_tool.peek().is_none() {
            return (!Operation::WITH_SESSIONS.contains(&tool)).then_some(Operation::External);
        }
        let call = self.call.as_deref();
        of_tool.find(|(_, name, _)| call.is_none_or(|call| call == *name)).map(|(.., operation)| *operation)
    }
}

impl AgentDefinition {
    /// Maximum size of a definition as JSON in bytes. It is part of every configuration of its run.
    pub const MOST_BYTES: usize = 128 << 10;

    /// The action with this name.
    pub fn action(&self, name: &str) -> Option<&ActionDefinition> {
        self.actions.iter().find(|action| action.name == name)
    }

    /// The planner's first prompt for a task.
    pub(crate) fn plan_prompt(&self, task: &str) -> String {
        let instruction = self.plan.as_deref().unwrap_or(PLAN);
        plan_in(instruction, task, self.environment.as_deref().unwrap_or(NO_ENVIRONMENT))
    }

    /// The grounder's instruction.
    pub fn ground(&self) -> String {
        self.ground.clone().unwrap_or_else(|| self.listed())
    }

    /// The published instruction with this agent's actions.
    fn listed(&self) -> String {
        let quoted: Vec<_> = self.actions.iter().map(|action| format!("'{}'", action.name)).collect();
        let names = match quoted.as_slice() {
            [] => String::new(),
            [one] => one.clone(),
            [one, two] => format!("{one} and {two}"),
            [first @ .., last] => format!("{}, and {last}", first.join(", ")),
        };
        let described: Vec<_> = self
            .actions
            .iter()
            .map(|action| {
                let arguments: Vec<_> = action.arguments.iter().map(ArgumentDefinition::name).collect();
                let description = action.description.trim().trim_end_matches('.');
                format!("{}({}): {description}", action.name, arguments.join(", "))
            })
            .collect();
        format!(
            "Please ground the given subgoal to corresponding executable actions for solving the given task. The \
             grounded actions must be the one in available action list.\n\nThe available action list is {names}.\n{}.\n\n",
            described.join("; ")
        )
    }

    /// The tools that it calls, sorted. Questions to the model of role `qa` are not a tool.
    pub fn tools(&self) -> Vec<&str> {
        let operations = || self.actions.iter().filter_map(ActionDefinition::operation);
        let named = self.actions.iter().filter(|action| action.operation().is_some());
        let mut tools: Vec<&str> = named
            .filter_map(|action| action.tool.as_deref())
            .filter(|tool| *tool != Role::Qa.name())
            .collect();
        if operations().any(|one| one == Operation::Calculate) {
            tools.push("maths");
        }
        // Pages that a search finds for a question without an answer are ranked.
        if self.searches() {
            tools.push("rank");
        }
        tools.sort_unstable();
        tools.dedup();
        tools
    }

    /// Whether it asks the model of role `qa`.
    pub fn asks(&self) -> bool {
        let operations = self.actions.iter().filter_map(ActionDefinition::operation);
        self.answer == FinalAnswer::Ask
            || operations.into_iter().any(|one| matches!(one, Operation::Answer | Operation::Calculate))
    }

    /// Whether a question without an answer is searched for in pages: the agent has an encyclopaedia.
    pub(crate) fn searches(&self) -> bool {
        let has = |wanted| self.actions.iter().any(|action| action.operation() == Some(wanted));
        has(Operation::Answer) && has(Operation::Pages)
    }

    /// The operations of tools that are not built in, by tool.
    pub fn external(&self) -> impl Iterator<Item = (&str, &str)> {
        self.actions.iter().filter(|action| action.operation() == Some(Operation::External)).filter_map(
            |action| Some((action.tool.as_deref()?, action.call.as_deref().unwrap_or(&action.name))),
        )
    }

    /// Returns what is wrong, each with its key: `agent.actions[0].tool`. Empty if the definition can be used.
    pub fn problems(&self) -> Vec<(String, String)> {
        problems::problems(self)
    }

    /// Hash of everything in it.
    pub fn hash(&self) -> ContentHash {
        ContentHash::of_json(&("agent/1", self))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn action(name: &str, tool: &str, call: Option<&str>) -> ActionDefinition {
        ActionDefinition {
            name: name.to_owned(),
            tool: Some(tool.to_owned()),
            call: call.map(str::to_owned),
            ..ActionDefinition::default()
        }
    }

    #[test]
    fn tools_follow_from_actions() {
        let tools = |actions: Vec<ActionDefinition>| {
            let agent = AgentDefinition { actions, ..AgentDefinition::default() };
            (agent.tools().join(" "), agent.asks())
        };
        assert_eq!(tools(vec![action("QA", "qa", None)]), (String::new(), true));
        let searching = vec![action("QA", "qa", None), action("Pages", "wiki", None)];
        assert_eq!(tools(searching), ("rank wiki".to_owned(), true));
        assert_eq!(tools(vec![action("Add", "qa", Some("calculate"))]), ("maths".to_owned(), true));
        assert_eq!(tools(vec![action("Ask", "oracle", None)]), ("oracle".to_owned(), false));
        assert_eq!(tools(vec![action("Buy", "shop", None)]), (String::new(), false));
    }

    #[test]
    fn operations_of_external_tools_have_the_actions_names() {
        let actions = vec![action("Ask", "oracle", None), action("Tell", "oracle", Some("say"))];
        let agent = AgentDefinition { actions, ..AgentDefinition::default() };
        assert_eq!(agent.external().collect::<Vec<_>>(), [("oracle", "Ask"), ("oracle", "say")]);
        assert_eq!(action("Add", "maths", Some("subtract")).operation(), None);
    }

    #[test]
    fn lists_of_actions_are_written_as_in_the_published_instruction() {
        let listed = |names: &[&str]| {
            let actions = names.iter().map(|name| action(name, "oracle", None)).collect();
            AgentDefinition { actions, ..AgentDefinition::default() }.ground()
        };
        assert!(listed(&["A"]).contains("action list is 'A'.\nA(): .\n\n"));
        assert!(listed(&["A", "B"]).contains("'A' and 'B'."));
        assert!(listed(&["A", "B", "C"]).contains("'A', 'B', and 'C'."));
    }
}
