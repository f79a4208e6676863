//! Replaces the SQLite functions that take more than linear time by functions that charge the budget.
//!
//! A function is a single instruction of SQLite's virtual machine however long it takes. Functions whose time
//! grows with the product of the sizes of their arguments are therefore replaced: they charge the statement's
//! [`Budget`] first and fail if it is exceeded. Plain text is processed here, other values by SQLite's own
//! function on a helper connection of the thread; results are identical to the byte. `NOCASE` is replaced for
//! the same reason: sorting is a single instruction too.
//!
//! All other functions scan their arguments once, and values are short (`limits::CELL_BYTES`), so the budget
//! is checked often enough between their calls.

use std::cmp::Ordering;
use std::sync::Arc;

use rusqlite::functions::{Context, FunctionFlags};
use rusqlite::types::{ToSqlOutput, Value, ValueRef};
use rusqlite::{Connection, ToSql, ffi};

use super::limits::{Budget, CELL_BYTES};
use super::sqlite::PATTERN_BYTES;

/// The replaced functions and their numbers of arguments.
const COSTLY: [(&str, i32); 9] = [
    ("instr", 2),
    ("replace", 3),
    ("like", 2),
    ("like", 3),
    ("glob", 2),
    ("trim", 2),
    ("ltrim", 2),
    ("rtrim", 2),
    ("unhex", 2),
];

/// Number of bytes scanned in the time of one instruction.
const BYTES: u64 = 8;
/// Number of pairs of bytes compared in the time of one instruction.
const PAIRS: u64 = 16;
/// Number of steps of `LIKE` between two checks of the budget.
const STEPS: u32 = 1024;
/// Cost of a query on the helper connection, in instructions.
const HELPED: u64 = 200;

thread_local! {
    /// Connection on which SQLite's own functions are called.
    static HELPER: rusqlite::Result<Connection> = helper();
}

fn helper() -> rusqlite::Result<Connection> {
    let helper = Connection::open_in_memory()?;
    super::sqlite::limit_values(&helper)?;
    Ok(helper)
}

/// An argument, passed on unchanged.
struct Passed<'a>(ValueRef<'a>);

impl ToSql for Passed<'_> {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(self.0))
    }
}

/// Result of a function. Text may be invalid UTF-8.
enum Computed {
    Text(Vec<u8>),
    Other(Value),
}

impl From<ValueRef<'_>> for Computed {
    fn from(value: ValueRef<'_>) -> Self {
        match value {
            ValueRef::Text(bytes) => Self::Text(bytes.to_vec()),
            ValueRef::Blob(bytes) => Self::Other(Value::Blob(bytes.to_vec())),
            ValueRef::Null => Self::Other(Value::Null),
            ValueRef::Integer(value) => Self::Other(Value::Integer(value)),
            ValueRef::Real(value) => Self::Other(Value::Real(value)),
        }
    }
}

impl ToSql for Computed {
    fn to_sql(&self) -> rusqlite::Result<ToSqlOutput<'_>> {
        Ok(ToSqlOutput::Borrowed(match self {
            Self::Text(bytes) => ValueRef::Text(bytes),
            Self::Other(value) => value.into(),
        }))
    }
}

/// Registers the replacements.
///
/// # Errors
/// If SQLite rejects a function.
pub(super) fn replace(connection: &Connection, budget: &Arc<Budget>) -> rusqlite::Result<()> {
    let flags =
        FunctionFlags::SQLITE_UTF8 | FunctionFlags::SQLITE_DETERMINISTIC | FunctionFlags::SQLITE_INNOCUOUS;
    for (name, arguments) in COSTLY {
        let budget = Arc::clone(budget);
        connection
            .create_scalar_function(name, arguments, flags, move |context| call(name, &budget, context))?;
    }
    let budget = Arc::clone(budget);
    connection.create_collation("NOCASE", move |left, right| compare(&budget, left, right))
}

fn call(name: &str, budget: &Budget, context: &Context<'_>) -> rusqlite::Result<Computed> {
    let arguments: Vec<_> = (0..context.len()).map(|at| Passed(context.get_raw(at))).collect();
    let sizes: Vec<u64> = arguments.iter().map(|argument| size(argument.0)).collect();
    let product = sizes.iter().take(2).product::<u64>() / PAIRS;
    if budget.charge(1 + sizes.iter().sum::<u64>() / BYTES) {
        return Err(interrupted());
    }
    let texts: Option<Vec<&str>> = arguments.iter().map(|argument| plain_text(argument.0)).collect();
    if let Some(texts) = texts {
        if name.ends_with("trim") && budget.charge(product) {
            return Err(interrupted());
        }
        let computed = of_texts(name, &texts, budget);
        if budget.is_stopped() {
            return Err(interrupted());
        }
        if let Some(computed) = computed {
            return Ok(computed);
        }
    }
    if budget.charge(HELPED + product) {
        return Err(interrupted());
    }
    let places = (1..=arguments.len()).map(|place| format!("?{place}")).collect::<Vec<_>>().join(", ");
    HELPER.with(|helper| {
        let helper = helper.as_ref().map_err(|_| interrupted())?;
        let query = format!("SELECT {name}({places})");
        helper.query_row(&query, rusqlite::params_from_iter(&arguments), |row| {
            row.get_ref(0).map(Computed::from)
        })
    })
}

/// Returns a text that SQLite and Rust interpret identically: valid UTF-8 without NUL characters.
fn plain_text(value: ValueRef<'_>) -> Option<&str> {
    let ValueRef::Text(bytes) = value else { return None };
    std::str::from_utf8(bytes).ok().filter(|text| !text.contains('\0'))
}

/// Computes a function of plain text. Returns `None` for cases left to SQLite: long results, long patterns,
/// and errors. Searching takes time linear in both texts here.
fn of_texts(name: &str, texts: &[&str], budget: &Budget) -> Option<Computed> {
    let text = |text: &str| Some(Computed::Text(text.as_bytes().to_vec()));
    match (name, texts) {
        ("instr", [all, part]) => {
            let place =
                all.find(part).and_then(|at| all.get(..at)).map_or(0, |before| before.chars().count() + 1);
            i64::try_from(place).ok().map(|place| Computed::Other(Value::Integer(place)))
        }
        ("replace", [all, "", _]) => text(all),
        ("replace", [all, part, new]) => {
            let replaced = all.len() + all.matches(part).count() * new.len().saturating_sub(part.len());
            if replaced > CELL_BYTES { None } else { text(&all.replace(part, new)) }
        }
        ("trim", [all, set]) => text(all.trim_matches(|one| set.contains(one))),
        ("ltrim", [all, set]) => text(all.trim_start_matches(|one| set.contains(one))),
        ("rtrim", [all, set]) => text(all.trim_end_matches(|one| set.contains(one))),
        ("like", [pattern, all]) if pattern.len() <= PATTERN_BYTES => {
            Some(Computed::Other(Value::Integer(is_like(pattern, all, budget)?.into())))
        }
        _ => None,
    }
}

/// `LIKE`: `%` matches any characters and `_` one character; ASCII letters match without case. Returns `None`
/// if the budget is exceeded.
fn is_like(pattern: &str, text: &str, budget: &Budget) -> Option<bool> {
    let mut rest = (pattern.chars(), text.chars());
    // Position to continue from if the part after the latest `%` does not match.
    let mut again: Option<(std::str::Chars<'_>, std::str::Chars<'_>)> = None;
    for step in 1u32.. {
        if step % STEPS == 0 && budget.charge(u64::from(STEPS) / PAIRS) {
            break;
        }
        let at = rest.clone();
        match (rest.0.next(), rest.1.next()) {
            (None, None) => return Some(true),
            (Some('%'), _) => {
                again = Some((rest.0.clone(), at.1.clone()));
                rest.1 = at.1;
                continue;
            }
            (Some('_'), Some(_)) => continue,
            (Some(one), Some(other)) if one.eq_ignore_ascii_case(&other) => continue,
            _ => {}
        }
        let Some((after, from)) = &mut again else { return Some(false) };
        if from.next().is_none() {
            return Some(false);
        }
        rest = (after.clone(), from.clone());
    }
    None
}

fn size(value: ValueRef<'_>) -> u64 {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes.len() as u64,
        _ => 8,
    }
}

fn interrupted() -> rusqlite::Error {
    rusqlite::Error::SqliteFailure(ffi::Error::new(ffi::SQLITE_INTERRUPT), None)
}

/// Compares like SQLite's `NOCASE`: ASCII letters without case, up to a NUL character, shorter text first.
fn compare(budget: &Budget, left: &str, right: &str) -> Ordering {
    let (left, right) = (left.as_bytes(), right.as_bytes());
    // The cost of short texts is covered by the instruction that compares them.
    let cost = left.len().min(right.len()) as u64 / 64;
    if cost > 0 && budget.charge(cost) {
        return Ordering::Equal;
    }
    for (one, other) in left.iter().zip(right) {
        let (one, other) = (one.to_ascii_lowercase(), other.to_ascii_lowercase());
        if one != other {
            return one.cmp(&other);
        }
        if one == 0 {
            break;
        }
    }
    left.len().cmp(&right.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A connection with the replacements, and a plain SQLite connection.
    fn both() -> (Connection, Connection) {
        let priced = Connection::open_in_memory().unwrap();
        let budget = Arc::new(Budget::new(crate::sessions::sql::limits::LONGEST));
        budget.start(budget.announce());
        replace(&priced, &budget).unwrap();
        (priced, Connection::open_in_memory().unwrap())
    }

    fn shown(connection: &Connection, query: &str, values: &[Value]) -> String {
        let value = connection
            .query_row(query, rusqlite::params_from_iter(values), |row| {
                Ok(format!("{:?} {:?}", row.get_ref(0)?, row.get_ref(1)?))
            })
            .map_err(|error| error.to_string());
        format!("{value:?}")
    }

    fn value() -> impl Strategy<Value = Value> {
        prop_oneof![
            Just(Value::Null),
            any::<i64>().prop_map(Value::Integer),
            (-1e9..1e9f64).prop_map(Value::Real),
            "[aAbB%_*?\\[\\]^0-9 é-]{0,12}".prop_map(Value::Text),
            "[aA%_]{0,8}".prop_map(Value::Text),
            "[aé\\x00]{0,3}".prop_map(Value::Text),
            "a{0,2}[bK\u{212a}]{0,2}".prop_map(Value::Text),
            proptest::collection::vec(any::<u8>(), 0..6).prop_map(Value::Blob),
        ]
    }

    proptest! {
        #[test]
        fn results_are_those_of_sqlite(
            values in proptest::collection::vec(value(), 3),
            at in 0..COSTLY.len(),
        ) {
            let (priced, plain) = both();
            let (name, arguments) = COSTLY[at];
            let count = usize::try_from(arguments).unwrap_or(3);
            let places = (1..=count).map(|place| format!("?{place}")).collect::<Vec<_>>().join(", ");
            let query = format!("SELECT {name}({places}), typeof({name}({places}))");
            let values = &values[..count];
            prop_assert_eq!(shown(&priced, &query, values), shown(&plain, &query, values), "{}", query);
        }

        #[test]
        fn texts_compare_as_in_sqlite(left in "[aAbB\\x00é]{0,5}", right in "[aAbB\\x00é]{0,5}") {
            let (priced, plain) = both();
            let query = "SELECT (?1 < ?2 COLLATE NOCASE) - (?1 > ?2 COLLATE NOCASE), 'x'";
            let values = [Value::Text(left), Value::Text(right)];
            prop_assert_eq!(shown(&priced, query, &values), shown(&plain, query, &values));
        }
    }

    #[test]
    fn long_values_are_refused_before_they_are_computed() {
        let connection = Connection::open_in_memory().unwrap();
        let budget = Arc::new(Budget::new(crate::sessions::sql::limits::LONGEST));
        replace(&connection, &budget).unwrap();
        let long = "a".repeat(1 << 18);
        for query in [
            "SELECT instr(CAST(?1 AS BLOB), CAST(substr(?1, 1, 130000) || 'b' AS BLOB))",
            "SELECT replace(CAST(?1 AS BLOB), CAST(substr(?1, 1, 130000) || 'b' AS BLOB), 'c')",
            "SELECT trim(?1, ?1)",
            "SELECT ltrim(?1, 'b' || ?1)",
        ] {
            budget.start(budget.announce());
            let error = connection.query_row(query, [&long], |row| row.get::<_, Value>(0)).unwrap_err();
            assert_eq!(error.sqlite_error_code(), Some(rusqlite::ErrorCode::OperationInterrupted), "{query}");
            assert!(budget.is_stopped());
        }
    }
}
