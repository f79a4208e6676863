//! `KnowledgeQuery` and `ParagraphRetrieve`: fetch passages of pages and select the best ones.

use super::world::World;
use super::{Known, MAX_VALUE, substitute};
use crate::call::Passage;
use crate::families::Failure;
use crate::families::execution::Interrupt;
use crate::families::parse::find_variables;
use crate::families::qa::page::{LISTED_SENTENCES, MOST_SENTENCES, SENTENCE_MARK, TABLE_MARK, WikiPage};
use crate::formulation::Behaviour;
use crate::outcome::Value;
use crate::python::strip;

/// Separator between a passage's title and its text.
const TITLE_MARK: &str = "***";
/// Title of a passage that contains a page's tables.
const TABLE_TITLE: &str = "Reference Table:";

/// `KnowledgeQuery(query)`: the passages of the page found, or of the pages of a list.
pub(super) fn query(arguments: &str, known: Known<'_>, world: &mut World<'_>) -> Result<Value, Interrupt> {
    let query = substitute(arguments, known, Value::to_python_text)?;
    let page = world.page(&query)?;
    let passages = match page {
        WikiPage::Listed(entries) => {
            let (mut all, mut bytes) = (Vec::new(), 0);
            for entry in entries {
                // A list within a list is skipped.
                if let Some(text) = world.page(entry)?.observation(LISTED_SENTENCES) {
                    let found = passages(entry, &text, &format!(" {TABLE_MARK} "));
                    bytes += found.iter().map(String::len).sum::<usize>();
                    if bytes > MAX_VALUE {
                        return Err(Failure::argument("the pages' passages are too long").into());
                    }
                    all.extend(found);
                }
            }
            all
        }
        page => passages(&query, &page.observation(MOST_SENTENCES).unwrap_or_default(), TABLE_MARK),
    };
    Ok(Value::List(passages.into_iter().map(Some).collect()))
}

/// The passages of an observation, each `title *** text`; if it contains `mark`, its tables come first.
pub(super) fn passages(title: &str, observation: &str, mark: &str) -> Vec<String> {
    let titled = |text: &str| format!("{title} {TITLE_MARK} {}", strip(text));
    if !observation.contains(mark) {
        return observation.split(SENTENCE_MARK).map(titled).collect();
    }
    let mut parts = observation.split(TABLE_MARK);
    let table = strip(parts.next().unwrap_or_default());
    let text = strip(parts.next().unwrap_or_default());
    let table = format!("{TABLE_TITLE} {TITLE_MARK} {table}");
    std::iter::once(table).chain(text.split(SENTENCE_MARK).map(titled)).collect()
}

/// Splits passages into title and text. A mark in the title, or a second one in the text, truncates it there.
pub(super) fn titled<'a>(passages: impl Iterator<Item = &'a str>) -> Result<Vec<Passage>, Failure> {
    passages
        .map(|passage| {
            let mut parts = passage.split(TITLE_MARK).map(|part| strip(part).to_owned());
            let (title, text) = (parts.next().unwrap_or_default(), parts.next());
            text.map(|text| Passage { title, text })
                .ok_or_else(|| Failure::argument("a passage has no title"))
        })
        .collect()
}

/// `ParagraphRetrieve(context, Query: …)`: the passages of the first variable that are most relevant to the
/// query.
pub(super) fn retrieve(arguments: &str, known: Known<'_>, world: &mut World<'_>) -> Result<Value, Interrupt> {
    let question =
        arguments.split(", Query: ").nth(1).ok_or_else(|| Failure::argument("there is no `, Query: `"))?;
    let variable = find_variables(arguments)
        .into_iter()
        .next()
        .ok_or_else(|| Failure::argument("no variable with passages is named"))?;
    let no_passages = || Failure::argument(format!("`{variable}` holds no passages"));
    let Value::List(entries) = known.value(variable)? else { return Err(no_passages().into()) };
    let passages = titled(entries.iter().flatten().map(String::as_str))?;
    let first = passages.first().ok_or_else(no_passages)?;
    let question = match known.behaviour {
        Behaviour::Paper => question.to_owned(),
        // The original does not substitute variables in the question.
        Behaviour::Corrected => substitute(question, known, in_a_question)?,
    };
    let evidence = world.evidence(&question, &passages)?;
    Ok(Value::Text(if first.title.contains(TABLE_TITLE) {
        format!("Reference Table: {}\n{evidence}", first.text)
    } else {
        evidence
    }))
}

/// A value as inserted into a question in corrected behaviour: the answer only.
pub(super) fn in_a_question(value: &Value) -> String {
    match value {
        Value::Text(text) => {
            strip(crate::families::qa::answer::of_value(text)).trim_end_matches('.').to_owned()
        }
        Value::List(_) => value.to_python_text(),
    }
}
