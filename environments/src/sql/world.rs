//! [`World`]: the environment's state between statements, which is one observation (upstream `SqlEnv`,
//! `IntercodeEnv.step`).

use lumos_tasks::{SqlGrade, SqlReply};

use super::cell::{Row, row_text};
use super::lexer::{Token, tokens};
use super::reward::{SqlReward, is_same, reward};

/// The result of a statement.
#[derive(Debug, Clone, PartialEq)]
pub enum Fetched {
    /// Result rows; may be empty.
    Rows(Vec<Row>),
    /// The statement was executed and has no result (`USE`, `UPDATE`, `CREATE`, a comment).
    Nothing,
    /// The statement failed.
    Failed {
        /// The server's message, without error code and SQL state.
        message: String,
    },
}

/// The environment's observation.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum SqlObservation {
    /// Python's `None`.
    #[default]
    None,
    /// Rows, each as printed.
    Rows(Vec<String>),
    /// The text of an error.
    Text(String),
}

impl SqlObservation {
    /// `str(observation)`.
    pub fn printed(&self) -> String {
        match self {
            Self::None => "None".to_owned(),
            Self::Rows(rows) => format!("[{}]", rows.join(", ")),
            Self::Text(text) => text.clone(),
        }
    }

    /// Parses a printed observation: a list of tuples as rows, `None`, or any other text.
    pub fn of_printed(text: &str) -> Self {
        match printed_rows(text) {
            Some(rows) => Self::Rows(rows),
            None if text == "None" => Self::None,
            None => Self::Text(text.to_owned()),
        }
    }

    /// The reply that an episode gets.
    pub fn reply(&self) -> SqlReply {
        match self {
            Self::None => SqlReply::Nothing,
            Self::Text(message) => SqlReply::Error(message.clone()),
            Self::Rows(rows) => SqlReply::Rows {
                rows: rows.iter().take(SqlReply::SHOWN_ROWS).cloned().collect(),
                count: rows.len() as u64,
            },
        }
    }
}

/// The rows of a printed list of tuples.
fn printed_rows(text: &str) -> Option<Vec<String>> {
    let inner = text.strip_prefix('[')?.strip_suffix(']')?;
    let (mut rows, mut depth, mut start, mut quote, mut escaped) = (Vec::new(), 0u32, 0, None, false);
    for (at, character) in inner.char_indices() {
        match (quote, character) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(open), _) if open == character => quote = None,
            (None, '\'' | '"') => quote = Some(character),
            (None, '(') => {
                if depth == 0 {
                    start = at;
                }
                depth += 1;
            }
            (None, ')') => {
                depth = depth.checked_sub(1)?;
                if depth == 0 {
                    rows.push(inner.get(start..=at)?.to_owned());
                }
            }
            _ => {}
        }
    }
    let is_whole = depth == 0 && quote.is_none() && rows.join(", ") == inner;
    is_whole.then_some(rows)
}

/// The grade of the current observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Grade {
    /// The original's reward, from -1 to 1.
    pub reward: f64,
    /// Its components, if the observation is a result.
    pub parts: Option<SqlReward>,
    /// Corrected scoring: whether the rows equal the gold query's, in its order if it specifies one.
    pub is_same: bool,
    /// The gold query failed; its result counts as empty in that case.
    pub corrupt_gold: bool,
    /// The gold query returns no rows, so that any empty result gets a reward of 1.
    pub empty_gold: bool,
    /// The gold rows as printed.
    pub gold: Vec<String>,
}

impl Grade {
    /// The reply that an episode gets.
    pub fn reply(&self) -> SqlGrade {
        SqlGrade {
            reward: self.reward,
            is_same: self.is_same,
            corrupt_gold: self.corrupt_gold,
            empty_gold: self.empty_gold,
        }
    }
}

/// The environment of one item.
#[derive(Debug, Clone, Default)]
pub struct World {
    observation: SqlObservation,
}

impl World {
    /// The current observation. After a reset it is `None`, because selecting the database overwrites the
    /// question.
    pub fn observation(&self) -> &SqlObservation {
        &self.observation
    }

    /// Records the result of a statement. Returns whether it was executed.
    pub fn executed(&mut self, fetched: Fetched) -> bool {
        self.observation = match fetched {
            Fetched::Rows(rows) => SqlObservation::Rows(rows.iter().map(|row| row_text(row)).collect()),
            Fetched::Nothing => SqlObservation::None,
            Fetched::Failed { message } => SqlObservation::Text(format!("Error executing query: {message}")),
        };
        !matches!(self.observation, SqlObservation::Text(_))
    }

    /// A world with this observation.
    pub fn showing(observation: SqlObservation) -> Self {
        Self { observation }
    }

    /// Grades the current observation by the result of the gold query.
    pub fn grade(&self, gold_query: &str, gold: &Fetched) -> Grade {
        let corrupt_gold = matches!(gold, Fetched::Failed { .. });
        let gold = match gold {
            Fetched::Rows(rows) => rows.iter().map(|row| row_text(row)).collect(),
            Fetched::Nothing | Fetched::Failed { .. } => Vec::new(),
        };
        self.grade_printed(gold_query, gold, corrupt_gold)
    }

    /// Grades the current observation by the printed gold rows.
    pub fn grade_printed(&self, gold_query: &str, gold: Vec<String>, corrupt_gold: bool) -> Grade {
        let (parts, is_same) = match &self.observation {
            SqlObservation::Rows(rows) => {
                (Some(reward(rows, &gold)), !corrupt_gold && is_same(rows, &gold, has_order(gold_query)))
            }
            SqlObservation::None | SqlObservation::Text(_) => (None, false),
        };
        let reward = parts.map_or(0.0, |parts| parts.value);
        Grade { reward, parts, is_same, corrupt_gold, empty_gold: gold.is_empty(), gold }
    }
}

/// Whether a query orders its whole result: `ORDER BY` outside of parentheses, quotes and comments.
pub fn has_order(query: &str) -> bool {
    let mut depth = 0i64;
    let mut after_order = false;
    for token in tokens(query) {
        match token {
            Token::Symbol('(') => depth += 1,
            Token::Symbol(')') => depth -= 1,
            Token::Word(word) if depth == 0 => {
                if after_order && word.eq_ignore_ascii_case("by") {
                    return true;
                }
                after_order = word.eq_ignore_ascii_case("order");
                continue;
            }
            _ => {}
        }
        after_order = false;
    }
    false
}

#[cfg(test)]
mod tests {
    use super::super::Cell;
    use super::*;

    fn rows(values: &[i128]) -> Fetched {
        Fetched::Rows(values.iter().map(|value| vec![Cell::Integer(*value)]).collect())
    }

    #[test]
    fn errors_and_missing_results_are_worth_nothing() {
        let mut world = World::default();
        assert_eq!(world.grade("SELECT 1", &rows(&[])).reward, 0.0);
        assert!(!world.executed(Fetched::Failed { message: "no such table".to_owned() }));
        assert_eq!(world.observation().printed(), "Error executing query: no such table");
        assert!(world.executed(rows(&[1, 2])));
        assert_eq!(world.observation().printed(), "[(1,), (2,)]");
        let grade = world.grade("SELECT a FROM t", &rows(&[2, 1]));
        assert_eq!((grade.reward, grade.is_same), (-1.0, true));
        assert!(!world.grade("SELECT a FROM t ORDER BY a DESC", &rows(&[2, 1])).is_same);
        world.executed(rows(&[]));
        let failed = Fetched::Failed { message: String::new() };
        let grade = world.grade("SELEC", &failed);
        assert!(grade.corrupt_gold && grade.reward == 1.0 && !grade.is_same);
    }

    #[test]
    fn an_order_within_parentheses_is_none_of_the_result() {
        assert!(has_order("select a from t order  BY a"));
        assert!(!has_order("select a from (select a from t order by a limit 1) as x"));
        assert!(!has_order("select 'order by' from t -- order by a"));
        assert!(!has_order("select `order` from t"));
    }
}
