"""Questions about a database, each with its SQL and with the planner's words for it.

The planner's words name tables and columns as the database does, so that grounding is a translation:

    What is the average age of singers from France?
    Get the average of age from singer where country is 'France'.
    SELECT AVG(age) FROM singer WHERE country = 'France'
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from .schema import YEARS, Column, Database, Table, plural


@dataclass
class Question:
    """A question, its SQL, the tables it needs, and the planner's words for the query."""

    text: str
    sql: str
    goal: str
    tables: list[Table]
    hardness: str = "easy"


@dataclass
class Condition:
    """A condition: as it follows a noun in the question, in SQL, and in the planner's words."""

    text: str
    sql: str
    goal: str


def _quoted(value: object) -> str:
    return str(value) if isinstance(value, (int, float)) else "'" + str(value).replace("'", "''") + "'"


def _joined(words: list[str], last: str = " and ") -> str:
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + ("," if len(words) > 2 and last == " and " else "") + last + words[-1]


def _more(r: Random, column: Column) -> str:
    if column.words == "age" and r.random() < 0.5:
        return "older than"
    return r.choice(("greater than", "more than", "larger than", "higher than", "above", "over"))


def condition(r: Random, table: Table) -> Condition | None:
    """Returns a condition on a column of a table."""
    texts, numbers = table.of_kind("text"), table.of_kind("number")
    if numbers and (not texts or r.random() < 0.45):
        column = r.choice(numbers)
        low, high = min(table.values(column)), max(table.values(column))
        value = r.choice(table.values(column)) if r.random() < 0.5 else r.randint(int(low), max(int(low), int(high)))
        name, words = column.name, column.words
        is_year = words in YEARS
        chance = r.random()
        if chance < 0.12:
            other = r.randint(int(low), max(int(low), int(high)))
            first, second = sorted((value, other))
            text = r.choice((f"with {words} between {first} and {second}", f"whose {words} is between {first} and {second}"))
            return Condition(text, f"{name} BETWEEN {first} AND {second}", f"{name} between {first} and {second}")
        if chance < 0.27:
            text = r.choice((f"with {words} {value}", f"whose {words} is {value}", f"that have {words} {value}", f"with a {words} of {value}"))
            if is_year:
                text = r.choice((text, f"in {value}", f"in the year {value}", f"from {value}"))
            return Condition(text, f"{name} = {value}", f"{name} is {value}")
        sign, word = (">", _more(r, column)) if chance < 0.62 else ("<", r.choice(("less than", "lower than", "smaller than", "below", "under")))
        if is_year and r.random() < 0.7:
            word = "after" if sign == ">" else "before"
        if r.random() < 0.2:
            sign, word = (">=", "at least") if sign == ">" else ("<=", "at most")
        if word == "older than":
            text = r.choice((f"older than {value}", f"who are older than {value}", f"older than {value} years"))
        elif word in ("after", "before") and r.random() < 0.5:
            text = f"{word} {value}"
        else:
            text = r.choice((f"whose {words} is {word} {value}", f"with {words} {word} {value}", f"that have {words} {word} {value}",
                             f"with a {words} {word} {value}", f"where {words} is {word} {value}"))  # fmt: skip
        return Condition(text, f"{name} {sign} {value}", f"{name} {sign} {value}")
    if not texts:
        return None
    column = r.choice(texts)
    value, name, words = r.choice(table.values(column)), column.name, column.words
    shown = r.choice((value, value, f"'{value}'", f'"{value}"')) if "'" not in value else value
    chance = r.random()
    if chance < 0.08:
        part = value.split()[0][: r.choice((3, 4, 20))]
        if r.random() < 0.6:
            text = r.choice((f"whose {words} contains '{part}'", f"that contain '{part}' in their {words}", f"with the word '{part}' in {words}"))
            return Condition(text, f"{name} LIKE '%{part}%'", f"{name} contains '{part}'")
        text = r.choice((f"whose {words} starts with '{part}'", f"with {words} beginning with '{part}'"))
        return Condition(text, f"{name} LIKE '{part}%'", f"{name} starts with '{part}'")
    if chance < 0.15:
        text = r.choice((f"whose {words} is not {shown}", f"that do not have {words} {shown}", f"not with {words} {shown}"))
        return Condition(text, f"{name} != {_quoted(value)}", f"{name} is not {_quoted(value)}")
    forms = [f"whose {words} is {shown}", f"with {words} {shown}", f"with the {words} {shown}", f"that have {words} {shown}",
             f"of {words} {shown}", f"where {words} is {shown}", f"having {words} {shown}"]  # fmt: skip
    if column.source in ("country", "city") and r.random() < 0.6:
        forms = [f"from {shown}", f"in {shown}", f"located in {shown}", f"who live in {shown}", f"that are in {shown}"]
    if column.source in ("name", "title") and r.random() < 0.6:
        forms = [f"named {shown}", f"called {shown}", f"with {words} {shown}"]
    return Condition(r.choice(forms), f"{name} = {_quoted(value)}", f"{name} is {_quoted(value)}")


def _conditions(r: Random, table: Table) -> Condition | None:
    first = condition(r, table)
    if first and r.random() < 0.12:
        second = condition(r, table)
        if second and second.sql != first.sql:
            word = r.choice(("and", "and", "or"))
            return Condition(f"{first.text} {word} {second.text}", f"{first.sql} {word.upper()} {second.sql}", f"{first.goal} {word} {second.goal}")
    return first


def _where(found: Condition | None) -> tuple[str, str, str]:
    return (f" {found.text}", f" WHERE {found.sql}", f" where {found.goal}") if found else ("", "", "")


def _nouns(r: Random, table: Table) -> str:
    return plural(table.words)


def _shown(columns: list[Column]) -> tuple[str, str]:
    return ", ".join(c.name for c in columns), _joined([c.name for c in columns])


def _many(r: Random, words: str) -> str:
    return plural(words) if r.random() < 0.7 else words


def count(r: Random, table: Table) -> Question:
    """Counts rows."""
    found = _conditions(r, table) if r.random() < 0.5 else None
    text, where, goal = _where(found)
    nouns = _nouns(r, table)
    forms = [f"How many {nouns}{text} are there?", f"How many {nouns} are there{text}?", f"Count the number of {nouns}{text}.",
             f"What is the number of {nouns}{text}?", f"Find the number of {nouns}{text}.", f"How many {nouns}{text} do we have?",
             f"How many {nouns} do we have{text}?", f"What is the total number of {nouns}{text}?", f"Count the {nouns}{text}.",
             f"Return the number of {nouns}{text}.", f"Show the number of {nouns}{text}.", f"How many {nouns} exist{text}?",
             f"Tell me the number of {nouns}{text}."]  # fmt: skip
    return Question(r.choice(forms), f"SELECT COUNT(*) FROM {table.name}{where}", f"Count the rows of {table.name}{goal}.", [table])


def select(r: Random, table: Table) -> Question | None:
    """Selects columns, perhaps with a condition and an order."""
    columns = table.of_kind("text") + table.of_kind("number")
    if not columns:
        return None
    chosen = r.sample(columns, min(len(columns), r.choice((1, 1, 1, 2, 2, 3))))
    found = _conditions(r, table) if r.random() < 0.55 else None
    text, where, goal = _where(found)
    nouns = _nouns(r, table)
    words = _joined([c.words for c in chosen])
    several = _joined([_many(r, c.words) for c in chosen])
    one = table.words
    forms = [f"What are the {several} of all {nouns}{text}?", f"List the {words} of all {nouns}{text}.", f"Show the {words} of each {one}{text}.",
             f"Find the {several} of {nouns}{text}.", f"What is the {words} of each {one}{text}?", f"Give the {several} of {nouns}{text}.",
             f"Return the {several} of the {nouns}{text}.", f"Show all {several} of {nouns}{text}.", f"List {several} for all {nouns}{text}.",
             f"Show {words} for all {nouns}{text}.", f"What are the {several} of {nouns}{text}?", f"List the {several} of the {nouns}{text}.",
             f"Please show the {several} of {nouns}{text}.", f"What are the {several} of the {nouns}{text}?",
             f"Give me the {words} of every {one}{text}.", f"For each {one}{text}, show the {words}."]  # fmt: skip
    if found:
        forms += [f"What is the {words} of the {one}{text}?", f"Find the {words} of the {one}{text}.", f"Which {words} belongs to the {one}{text}?"] * 3
    if len(chosen) == 1 and not found:
        forms += [f"List all {one} {several}.", f"What are the {one} {several}?", f"Show all the {several}."]
    question = r.choice(forms)
    names, said = _shown(chosen)
    distinct = ""
    if r.random() < 0.12 and len(chosen) == 1:
        distinct = "DISTINCT "
        word = r.choice(("different", "distinct", "unique"))
        question = r.choice((f"What are the {word} {several} of {nouns}{text}?", f"List the {word} {several} of all {nouns}{text}.",
                             f"Show all {word} {several} of {nouns}{text}.", f"Find the {word} {several} for {nouns}{text}."))  # fmt: skip
        said = f"distinct {said}"
    order, order_goal, hardness = "", "", "easy"
    if not distinct and r.random() < 0.3:
        column = r.choice(columns)
        hardness = "medium"
        question, order, order_goal = _ordered(r, question, column)
    return Question(question, f"SELECT {distinct}{names} FROM {table.name}{where}{order}", f"Get {said} from {table.name}{goal}{order_goal}.", [table], hardness)


def _ordered(r: Random, question: str, column: Column) -> tuple[str, str, str]:
    words, name = column.words, column.name
    body, end = question[:-1], question[-1]
    if column.kind == "text" and r.random() < 0.5:
        text = r.choice((f" in alphabetical order of {words}", f" sorted by {words} alphabetically", f", in alphabetical order by {words}"))
        return body + text + end, f" ORDER BY {name} ASC", f", ascending by {name}"
    if words == "age" and r.random() < 0.4:
        down = r.random() < 0.5
        text = r.choice((" ordered by age", " sorted by age", "")) + (" from the oldest to the youngest" if down else " from youngest to oldest")
    else:
        down = r.random() < 0.5
        direction = r.choice(("descending", "decreasing")) if down else r.choice(("ascending", "increasing", "ascending"))
        text = r.choice((f" in {direction} order of {words}", f" ordered by {words} in {direction} order", f", sorted by {words} in {direction} order",
                         f" in {direction} order of their {words}", f" sorted in {direction} order by {words}"))  # fmt: skip
        if direction == "ascending" and r.random() < 0.4:
            text = r.choice((f" ordered by {words}", f", sorted by {words}", f" sorted by {words}"))
        if down and r.random() < 0.2:
            text = f" from the highest to the lowest {words}"
    return body + text + end, f" ORDER BY {name} {'DESC' if down else 'ASC'}", f", {'descending' if down else 'ascending'} by {name}"


AGGREGATES = {"average": "AVG", "maximum": "MAX", "minimum": "MIN", "sum": "SUM"}
SPOKEN = {"average": ("average", "mean", "average"), "maximum": ("maximum", "highest", "largest", "max"), "minimum": ("minimum", "lowest", "smallest", "min"),
          "sum": ("total", "sum of", "total")}  # fmt: skip


def aggregate(r: Random, table: Table) -> Question | None:
    """Computes one to three aggregates of a column."""
    numbers = table.of_kind("number")
    if not numbers:
        return None
    column = r.choice(numbers)
    chosen = r.sample(sorted(AGGREGATES), r.choice((1, 1, 1, 2, 2, 3)))
    found = _conditions(r, table) if r.random() < 0.35 else None
    text, where, goal = _where(found)
    nouns, words = _nouns(r, table), column.words
    said = _joined([r.choice(SPOKEN[kind]) for kind in chosen])
    be = "is" if len(chosen) == 1 else "are"
    forms = [f"What {be} the {said} {words} of all {nouns}{text}?", f"Find the {said} {words} of {nouns}{text}.", f"Show the {said} {words} of {nouns}{text}.",
             f"What {be} the {said} {words} of the {nouns}{text}?", f"Return the {said} {words} for {nouns}{text}.", f"Give the {said} {words} of {nouns}{text}.",
             f"What {be} the {said} {words} for all {nouns}{text}?", f"What {be} the {said} {words} across all {nouns}{text}?",
             f"What {be} the {said} {words} of {nouns}{text}?"]  # fmt: skip
    if chosen == ["average"] and r.random() < 0.15:
        forms = [f"What is the {words} of {nouns} on average{text}?"]
    if chosen == ["average"] and words == "age" and r.random() < 0.2:
        forms = [f"How old are the {nouns}{text} on average?"]
    sql = ", ".join(f"{AGGREGATES[kind]}({column.name})" for kind in chosen)
    goal_text = _joined([f"{kind} of {column.name}" for kind in chosen])
    return Question(r.choice(forms), f"SELECT {sql} FROM {table.name}{where}", f"Get {goal_text} from {table.name}{goal}.", [table])


def distinct_count(r: Random, table: Table) -> Question | None:
    """Counts the different values of a column."""
    columns = table.of_kind("text")
    if not columns:
        return None
    column = r.choice(columns)
    many, nouns, word = plural(column.words), _nouns(r, table), r.choice(("different", "distinct", "different"))
    found = condition(r, table) if r.random() < 0.2 else None
    text, where, goal = _where(found)
    forms = [f"How many {word} {many} are there{text}?", f"How many {word} {many} do the {nouns}{text} have?", f"Count the number of {word} {many} of {nouns}{text}.",
             f"Find the number of {word} {many} of {nouns}{text}.", f"What is the number of {word} {many} of {nouns}{text}?"]  # fmt: skip
    return Question(r.choice(forms), f"SELECT COUNT(DISTINCT {column.name}) FROM {table.name}{where}", f"Count distinct {column.name} of {table.name}{goal}.", [table])


def superlative(r: Random, table: Table) -> Question | None:
    """Selects columns of the first rows in an order."""
    numbers, texts = table.of_kind("number"), table.of_kind("text")
    if not numbers or not texts:
        return None
    column = r.choice(numbers)
    others = [c for c in texts + numbers if c is not column]
    chosen = r.sample(others, min(len(others), r.choice((1, 1, 1, 2))))
    down = r.random() < 0.6
    word = r.choice(("highest", "largest", "most", "greatest", "maximum")) if down else r.choice(("lowest", "smallest", "least", "minimum"))
    phrase = f"with the {word} {column.words}"
    one, nouns, words = table.words, plural(table.words), _joined([c.words for c in chosen])
    special = {"age": ("oldest", "youngest"), "year": ("most recent", "earliest"), "price": ("most expensive", "cheapest"), "weight": ("heaviest", "lightest"),
               "height": ("tallest", "shortest"), "length": ("longest", "shortest"), "population": ("most populated", "least populated"),
               "speed": ("fastest", "slowest"), "size": ("largest", "smallest"), "area": ("largest", "smallest")}  # fmt: skip
    pair = special.get(column.words)
    if pair and r.random() < 0.6:
        noun = f"{pair[0] if down else pair[1]} {one}"
    else:
        noun = f"{one} {phrase}"
    limit = 1
    if r.random() < 0.15:
        limit = r.choice((2, 3, 5))
        noun = f"top {limit} {nouns} with the {word} {column.words}" if r.random() < 0.5 else f"{limit} {nouns} with the {word} {column.words}"
    forms = [f"What is the {words} of the {noun}?", f"Find the {words} of the {noun}.", f"Show the {words} of the {noun}.", f"Give the {words} of the {noun}.",
             f"Return the {words} for the {noun}.", f"List the {words} of the {noun}."]  # fmt: skip
    if limit == 1 and len(chosen) == 1:
        forms += [f"Which {one} has the {word} {column.words}? Give me the {words}.", f"Which {words} has the {noun}?"]
    found = condition(r, table) if r.random() < 0.1 else None
    text, where, goal = _where(found)
    question = r.choice(forms)
    names, said = _shown(chosen)
    sql = f"SELECT {names} FROM {table.name}{where} ORDER BY {column.name} {'DESC' if down else 'ASC'} LIMIT {limit}"
    return Question(question[:-1] + text + question[-1], sql, f"Get {said} from {table.name}{goal}, {'descending' if down else 'ascending'} by {column.name}, first {limit}.",
                    [table], "medium")  # fmt: skip


def grouped(r: Random, table: Table) -> Question | None:
    """Groups by a column: counts, averages, the most common, those with enough rows."""
    texts, numbers = table.of_kind("text"), table.of_kind("number")
    if not texts:
        return None
    column = r.choice(texts)
    name, words, one, nouns = column.name, column.words, table.words, plural(table.words)
    chance = r.random()
    if chance < 0.4:
        forms = [f"How many {nouns} are there for each {words}?", f"Show the {words} and the number of {nouns} for each {words}.",
                 f"What is the number of {nouns} for each {words}?", f"For each {words}, how many {nouns} are there?", f"Count the number of {nouns} in each {words}.",
                 f"Find the number of {nouns} for each {words}.", f"Show all {plural(words)} and the number of {nouns} in each {words}.",
                 f"How many {nouns} does each {words} have?"]  # fmt: skip
        return Question(r.choice(forms), f"SELECT {name}, COUNT(*) FROM {table.name} GROUP BY {name}", f"Get {name} and the count of rows from {table.name}, grouped by {name}.", [table], "medium")
    if chance < 0.58 and numbers:
        number, kind = r.choice(numbers), r.choice(sorted(AGGREGATES))
        said = r.choice(SPOKEN[kind])
        forms = [f"What is the {said} {number.words} of {nouns} for each {words}?", f"Find the {said} {number.words} for each {words}.",
                 f"Show the {words} and the {said} {number.words} of {nouns} for each {words}.", f"For each {words}, what is the {said} {number.words}?"]  # fmt: skip
        return Question(r.choice(forms), f"SELECT {name}, {AGGREGATES[kind]}({number.name}) FROM {table.name} GROUP BY {name}",
                        f"Get {name} and {kind} of {number.name} from {table.name}, grouped by {name}.", [table], "medium")  # fmt: skip
    if chance < 0.8:
        forms = [f"Which {words} has the most {nouns}?", f"What is the most common {words} of {nouns}?", f"Find the {words} with the most {nouns}.",
                 f"What is the {words} with the largest number of {nouns}?", f"Show the most common {words} of {nouns}.", f"Which {words} is most common among the {nouns}?"]  # fmt: skip
        return Question(r.choice(forms), f"SELECT {name} FROM {table.name} GROUP BY {name} ORDER BY COUNT(*) DESC LIMIT 1",
                        f"Get {name} from {table.name}, grouped by {name}, descending by count, first 1.", [table], "hard")  # fmt: skip
    least = r.choice((1, 2, 2, 3))
    more = r.random() < 0.5
    word, sign = ("more than", ">") if more else ("at least", ">=")
    forms = [f"Which {plural(words)} have {word} {least} {nouns}?", f"Find the {plural(words)} with {word} {least} {nouns}.", f"List the {words} that have {word} {least} {nouns}.",
             f"What are the {plural(words)} with {word} {least} {nouns}?", f"Show the {plural(words)} which have {word} {least} {nouns}."]  # fmt: skip
    return Question(r.choice(forms), f"SELECT {name} FROM {table.name} GROUP BY {name} HAVING COUNT(*) {sign} {least}",
                    f"Get {name} from {table.name}, grouped by {name} with count {sign} {least}.", [table], "medium")  # fmt: skip


def above_average(r: Random, table: Table) -> Question | None:
    """Compares a column with its average."""
    numbers, texts = table.of_kind("number"), table.of_kind("text")
    if not numbers or not texts:
        return None
    column, shown = r.choice(numbers), r.choice(texts)
    more = r.random() < 0.7
    word, sign = (r.choice(("above", "greater than", "more than", "higher than", "larger than")), ">") if more else (r.choice(("below", "less than")), "<")
    forms = [f"What is the {shown.words} of {plural(table.words)} whose {column.words} is {word} the average?", f"Find the {plural(shown.words)} of {plural(table.words)} with {column.words} {word} the average.",
             f"List the {shown.words} of {plural(table.words)} with {word} average {column.words}."]  # fmt: skip
    return Question(r.choice(forms), f"SELECT {shown.name} FROM {table.name} WHERE {column.name} {sign} (SELECT AVG({column.name}) FROM {table.name})",
                    f"Get {shown.name} from {table.name} where {column.name} {sign} its average.", [table], "hard")  # fmt: skip


def joined(r: Random, child: Table) -> Question | None:
    """Asks about the rows of two tables, of which one refers to the other."""
    parent = child.parent
    if parent is None or not parent.of_kind("text") or not child.of_kind("text"):
        return None
    link, key = child.of_kind("ref")[0], parent.columns[0]
    on = f"{child.name} JOIN {parent.name} ON {child.name}.{link.name} = {parent.name}.{key.name}"
    via = f"{child.name} joined with {parent.name} on {link.name}" + (f" = {key.name}" if key.name != link.name else "")
    label = r.choice(parent.of_kind("text"))
    one, nouns, owner, owners = child.words, plural(child.words), parent.words, plural(parent.words)
    tables = [child, parent]
    chance = r.random()
    if chance < 0.35:
        shown = r.choice(child.of_kind("text") + child.of_kind("number"))
        value = r.choice(parent.values(label))
        forms = [f"What are the {plural(shown.words)} of the {nouns} of the {owner} with {label.words} {value}?", f"Find the {shown.words} of {nouns} whose {owner} has {label.words} {value}.",
                 f"List the {plural(shown.words)} of {nouns} that belong to the {owner} whose {label.words} is {value}.", f"Show the {shown.words} of {nouns} for the {owner} {value}."]  # fmt: skip
        return Question(r.choice(forms), f"SELECT {child.name}.{shown.name} FROM {on} WHERE {parent.name}.{label.name} = {_quoted(value)}",
                        f"Get {child.name}.{shown.name} from {via} where {parent.name}.{label.name} is {_quoted(value)}.", tables, "medium")  # fmt: skip
    if chance < 0.6:
        forms = [f"How many {nouns} does each {owner} have? Show the {label.words} and the number.", f"Show the {label.words} of each {owner} and the number of {nouns}.",
                 f"What is the {label.words} of each {owner} and how many {nouns} does it have?", f"For each {owner}, show its {label.words} and the number of {nouns}."]  # fmt: skip
        return Question(r.choice(forms), f"SELECT {parent.name}.{label.name}, COUNT(*) FROM {on} GROUP BY {parent.name}.{key.name}",
                        f"Get {parent.name}.{label.name} and the count of rows from {via}, grouped by {parent.name}.{key.name}.", tables, "medium")  # fmt: skip
    if chance < 0.8:
        forms = [f"Which {owner} has the most {nouns}? Give the {label.words}.", f"What is the {label.words} of the {owner} with the most {nouns}?", f"Find the {label.words} of the {owner} that has the largest number of {nouns}."]
        return Question(r.choice(forms), f"SELECT {parent.name}.{label.name} FROM {on} GROUP BY {parent.name}.{key.name} ORDER BY COUNT(*) DESC LIMIT 1",
                        f"Get {parent.name}.{label.name} from {via}, grouped by {parent.name}.{key.name}, descending by count, first 1.", tables, "hard")  # fmt: skip
    forms = [f"What are the {plural(label.words)} of {owners} that have no {nouns}?", f"Find the {label.words} of {owners} without any {one}.", f"List the {label.words} of each {owner} that does not have any {one}."]
    return Question(r.choice(forms), f"SELECT {label.name} FROM {parent.name} WHERE {key.name} NOT IN (SELECT {link.name} FROM {child.name})",
                    f"Get {label.name} from {parent.name} where {key.name} is not in {link.name} of {child.name}.", tables, "hard")  # fmt: skip


MAKERS: list[tuple[Callable[[Random, Table], Question | None], int]] = [
    (count, 22), (select, 34), (aggregate, 16), (distinct_count, 5), (superlative, 12), (grouped, 14), (above_average, 3), (joined, 14),
]  # fmt: skip


def draw(r: Random, database: Database) -> Question:
    """Returns a question about a database."""
    asked = [table for table in database.tables if table.words]
    while True:
        maker = r.choices([m for m, _ in MAKERS], [w for _, w in MAKERS])[0]
        question = maker(r, r.choice(asked))
        if question is not None and ";" not in question.text:
            return question
