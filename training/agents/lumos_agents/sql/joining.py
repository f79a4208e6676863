"""Questions about two or three joined tables."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from .asking import MOST, _ask, _columns, _fill, _list, _split, _top
from .conditions import condition, is_people, said_value
from .questions import AGGREGATES, Condition, Question, _joined, _quoted
from .schema import Column, Database, Table
from .vocabulary import plural


@dataclass
class Path:
    """Tables from one with many rows to one that it refers to, and how they are joined in SQL and in the planner's words."""

    many: Table
    one: Table
    sql: str
    goal: str
    tables: list[Table]
    #: The column of the joined tables that refers to `one`, with its table.
    reference: str
    direct: bool = True


def _step(left: Table, reference: Column, right: Table) -> tuple[str, str]:
    key = right.columns[0].name
    sql = f" JOIN {right.name} ON {left.name}.{reference.name} = {right.name}.{key}"
    return sql, f" joined with {right.name} on {reference.name}" + (f" = {key}" if key != reference.name else "")


def _paths(database: Database) -> list[Path]:
    paths = []
    for table in database.tables:
        references = [c for c in table.columns if c.kind == "ref"]
        for column, parent in zip(references, table.references, strict=False):
            sql, goal = _step(table, column, parent)
            paths.append(Path(table, parent, table.name + sql, table.name + goal, [table, parent], f"{table.name}.{column.name}"))
            above = [c for c in parent.columns if c.kind == "ref"]
            for upper, grand in zip(above, parent.references, strict=False):
                if grand is not table:
                    more, said = _step(parent, upper, grand)
                    paths.append(Path(table, grand, table.name + sql + more, table.name + goal + said, [table, parent, grand], f"{parent.name}.{upper.name}", False))
        if table.links:
            for at in (0, 1):
                first, second = table.links[at], table.links[1 - at]
                key = first.columns[0].name
                to = f" = {references[at].name}" if key != references[at].name else ""
                more, said = _step(table, references[1 - at], second)
                sql = f"{first.name} JOIN {table.name} ON {first.name}.{key} = {table.name}.{references[at].name}{more}"
                goal = f"{first.name} joined with {table.name} on {key}{to}{said}"
                paths.append(Path(first, second, sql, goal, [first, table, second], f"{table.name}.{references[1 - at].name}", False))
    return [p for p in paths if p.many is not p.one and p.one.of_kind("text") and p.many.of_kind("text") + p.many.of_kind("number")]


def _full(table: Table, columns: list[Column]) -> list[str]:
    return [f"{table.name}.{c.name}" for c in columns]


def _of_table(table: Table, found: Condition) -> tuple[str, str]:
    """Returns a condition in SQL and in the planner's words, with the table before each column."""
    name = found.sql.split()[0]
    column = f"{table.name}.{name}"
    return found.sql.replace(f"{name} ", f"{column} "), found.goal.replace(f"{name} ", f"{column} ")


def _owner(r: Random, path: Path, label: Column, value: str) -> str:
    """Returns words for the rows that belong to the row of `one` with a value."""
    owner, shown, words = path.one.words, said_value(r, label, value), label.words
    who = "who" if is_people(path.many) else "that"
    named = r.choice((f"with {words} {shown}", f"whose {words} is {shown}", f"with the {words} {shown}"))
    if label.source in ("name", "title"):
        named = r.choice((f"named {shown}", f"called {shown}", shown, shown, named))
    return r.choice((f"of the {owner} {named}", f"of the {owner} {named}", f"whose {owner} is {named}" if named[0] in "'\"" or named == shown else f"of {owner} {named}", f"{who} belong to the {owner} {named}", f"in the {owner} {named}",
                     f"from the {owner} {named}", f"for the {owner} {named}", f"{who} have a {owner} {named}", f"that are with the {owner} {named}"))  # fmt: skip


def draw(r: Random, database: Database) -> Question | None:
    """Returns a question about joined tables, or nothing if the database has none that can be joined."""
    paths = _paths(database)
    if not paths:
        return None
    path = r.choice(paths)
    return r.choices([m for m, _ in MAKERS], [w for _, w in MAKERS])[0](r, path)


def by_owner(r: Random, path: Path) -> Question:
    """Columns, the number, or an aggregate of the rows that belong to a row of the other table."""
    label = r.choice(path.one.of_kind("text"))
    value = r.choice(path.one.values(label))
    text, where = _owner(r, path, label, value), f" WHERE {path.one.name}.{label.name} = {_quoted(value)}"
    said = f" where {path.one.name}.{label.name} is {_quoted(value)}"
    if r.random() < 0.2:
        found = condition(r, path.one)
        if found and " " in found.text:
            sql, goal = _of_table(path.one, found)
            text, where, said = f"of {r.choice((path.one.words, plural(path.one.words)))} {found.text}", f" WHERE {sql}", f" where {goal}"
    nouns, numbers, chance = plural(path.many.words), path.many.of_kind("number"), r.random()
    if chance < 0.3:
        forms = [(f"How many {nouns} are there {text}", "?"), (f"Count the number of {nouns} {text}", "."), (f"What is the number of {nouns} {text}", "?"), (f"How many {nouns} {text} are there", "?"), (f"Find the number of {nouns} {text}", "."),
                 (f"How many {nouns} does the {path.one.words} {said_value(r, label, value)} have", "?") if text and f"= {_quoted(value)}" in where else (f"How many {nouns} do we have {text}", "?")]  # fmt: skip
        return Question(_fill(r, *r.choice(forms)), f"SELECT COUNT(*) FROM {path.sql}{where}", f"Count the rows of {path.goal}{said}.", path.tables, "medium")
    if chance < 0.42 and numbers:
        column, kind = r.choice(numbers), r.choice(sorted(AGGREGATES))
        start, end = _ask(r, f"{r.choice(MOST[kind])} {column.words}", False)
        return Question(_fill(r, f"{start} of {r.choice(('the ', 'all ', ''))}{nouns} {text}", end), f"SELECT {AGGREGATES[kind]}({path.many.name}.{column.name}) FROM {path.sql}{where}", f"Get {kind} of {path.many.name}.{column.name} from {path.goal}{said}.", path.tables, "medium")
    chosen = _columns(r, path.many)[:3]
    distinct = r.random() < 0.1
    start, end = _ask(r, f"{r.choice(('different ', 'distinct ')) if distinct else ''}{_list(r, chosen)}")
    names, order, order_goal = _full(path.many, chosen), "", ""
    question = f"{start} of {r.choice(('', 'the ', 'all ', 'all the '))}{nouns} {text}"
    if not distinct and r.random() < 0.1:
        column = r.choice(path.many.of_kind("number") + path.many.of_kind("text"))
        down = r.random() < 0.5
        question += f" in {'descending' if down else 'ascending'} order of {column.words}"
        order, order_goal = f" ORDER BY {path.many.name}.{column.name} {'DESC' if down else 'ASC'}", f", {'descending' if down else 'ascending'} by {path.many.name}.{column.name}"
    return Question(_fill(r, question, end), f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(names)} FROM {path.sql}{where}{order}", f"Get {'distinct ' if distinct else ''}{_joined(names)} from {path.goal}{said}{order_goal}.", path.tables, "medium")


def of_both(r: Random, path: Path) -> Question | None:
    """Columns of both tables."""
    chosen, label = _columns(r, path.many)[:2], r.choice(path.one.of_kind("text"))
    names = [*_full(path.many, chosen), f"{path.one.name}.{label.name}"]
    one, owner, nouns = path.many.words, path.one.words, plural(path.many.words)
    what, theirs = _list(r, chosen, False), f"{label.words} of {r.choice(('its', 'their', 'the'))} {owner}"
    forms = [f"Show the {what} of each {one} and the {theirs}.", f"List the {what} of all {nouns} with the {theirs}.", f"What are the {what} of every {one} and the {theirs}?", f"For each {one}, show the {what} and the {theirs}.",
             f"Find the {what} of {nouns} and the {owner} {label.words}.", f"Show {one} {what} and {owner} {label.words}.", f"What are the {owner} {label.words} and the {what} of each {one}?", f"Return the {what} of {nouns}, along with the {theirs}."]  # fmt: skip
    question = r.choice(forms)
    if question.startswith(f"What are the {owner} "):
        names = [names[-1], *names[:-1]]
    return Question(_fill(r, *_split(question)), f"SELECT {', '.join(names)} FROM {path.sql}", f"Get {_joined(names)} from {path.goal}.", path.tables, "medium")


def per_owner(r: Random, path: Path) -> Question:
    """Counts or aggregates of rows for each row of the other table, the ones with most, and those with enough."""
    label, key = r.choice(path.one.of_kind("text")), f"{path.one.name}.{path.one.columns[0].name}"
    shown = [label] if r.random() < 0.8 or len(path.one.of_kind("text")) < 2 else r.sample(path.one.of_kind("text"), 2)
    names, what = _full(path.one, shown), _list(r, shown, False)
    owner, owners, nouns, one, chance = path.one.words, plural(path.one.words), plural(path.many.words), path.many.words, r.random()
    numbers = path.many.of_kind("number")
    if chance < 0.36:
        forms = [f"Show the {what} of each {owner} and the number of {nouns}.", f"What is the {what} of each {owner} and how many {nouns} does it have?", f"For each {owner}, show the {what} and the number of {nouns}.", f"How many {nouns} does each {owner} have? List the {what} and the number.",
                 f"List the {what} of all {owners} and the number of {nouns} for each.", f"Show the {owner} {what} and the number of {nouns} in each {owner}.", f"What are the {what} and the number of {nouns} for each {owner}?", f"Find the number of {nouns} for each {owner}, and show its {what} first.",
                 f"How many {nouns} are there for each {owner}? Show the {what} of the {owner} and the count."]  # fmt: skip
        return Question(_fill(r, *_split(r.choice(forms))), f"SELECT {', '.join(names)}, COUNT(*) FROM {path.sql} GROUP BY {key}", f"Get {_joined([*names, 'the count of rows'])} from {path.goal}, grouped by {key}.", path.tables, "medium")
    if chance < 0.48 and numbers:
        column, kind = r.choice(numbers), r.choice(sorted(AGGREGATES))
        said = f"{r.choice(MOST[kind])} {column.words}"
        forms = [f"Show the {what} of each {owner} and the {said} of its {nouns}.", f"For each {owner}, find the {what} and the {said} of {nouns}.", f"What are the {what} and the {said} of {nouns} for each {owner}?"]
        return Question(_fill(r, *_split(r.choice(forms))), f"SELECT {', '.join(names)}, {AGGREGATES[kind]}({path.many.name}.{column.name}) FROM {path.sql} GROUP BY {key}",
                        f"Get {_joined([*names, f'{kind} of {path.many.name}.{column.name}'])} from {path.goal}, grouped by {key}.", path.tables, "medium")  # fmt: skip
    if chance < 0.76:
        down = r.random() < 0.85
        best = r.choice(("most", "largest number of", "greatest number of", "highest number of")) if down else r.choice(("fewest", "smallest number of", "least number of"))
        counted = r.random() < 0.12
        forms = [f"Which {owner} has the {best} {nouns}? Give the {what}.", f"What is the {what} of the {owner} with the {best} {nouns}?", f"Find the {what} of the {owner} that has the {best} {nouns}.", f"Show the {what} of the {owner} that has the {best} {nouns}.",
                 f"Return the {what} of the {owner} with the {best} {nouns}.", f"Which {owner} {what} has the {best} {nouns}?", f"List the {what} of the {owner} having the {best} {nouns}.", f"Give me the {what} of the {owner} with the {best} {nouns}."]  # fmt: skip
        if counted:
            forms = [f"What is the {what} of the {owner} with the {best} {nouns}, and how many does it have?", f"Find the {what} and the number of {nouns} of the {owner} with the {best} {nouns}."]
        more, said = (", COUNT(*)", [*names, "the count of rows"]) if counted else ("", names)
        return Question(_fill(r, *_split(r.choice(forms))), f"SELECT {', '.join(names)}{more} FROM {path.sql} GROUP BY {key} ORDER BY COUNT(*) {'DESC' if down else 'ASC'} LIMIT 1",
                        f"Get {_joined(said)} from {path.goal}, grouped by {key}, {'descending' if down else 'ascending'} by count, first 1.", path.tables, "hard")  # fmt: skip
    least = r.choice((1, 2, 2, 3, 4))
    word, sign = r.choice((("more than", ">"), ("at least", ">="), ("more than", ">"), ("at least", ">="), ("fewer than", "<"), ("exactly", "=")))
    number = {1: "one", 2: "two", 3: "three", 4: "four"}[least] if r.random() < 0.6 else str(least)
    thing = one if least == 1 else nouns
    forms = [f"Which {owners} have {word} {number} {thing}? Give their {what}.", f"What are the {what} of {owners} with {word} {number} {thing}?", f"Find the {what} of {owners} that have {word} {number} {thing}.", f"List the {what} of the {owners} having {word} {number} {thing}.",
             f"Show the {what} of each {owner} with {word} {number} {thing}.", f"Return the {what} of all {owners} who have {word} {number} {thing}."]  # fmt: skip
    return Question(_fill(r, *_split(r.choice(forms))), f"SELECT {', '.join(names)} FROM {path.sql} GROUP BY {key} HAVING COUNT(*) {sign} {least}", f"Get {_joined(names)} from {path.goal}, grouped by {key} with count {sign} {least}.", path.tables, "hard")


def missing(r: Random, path: Path) -> Question | None:
    """Rows of one table that the other does not refer to, and how many there are."""
    table, column = path.reference.split(".")
    source = next(t for t in path.tables if t.name == table)
    if not path.direct and not source.links:
        return None
    chosen = _columns(r, path.one)[:2]
    owner, owners, nouns, one = path.one.words, plural(path.one.words), plural(path.many.words), path.many.words
    tail = r.choice((f"that do not have any {one}", f"without any {one}", f"that have no {nouns}", f"who do not have {nouns}" if is_people(path.one) else f"that have no {one}", f"with no {nouns}", f"without {nouns}"))
    key = path.one.columns[0].name
    where = f"WHERE {key} NOT IN (SELECT {column} FROM {table})"
    said = f"where {key} is not in {column} of {table}"
    if r.random() < 0.25:
        return Question(_fill(r, *r.choice(((f"How many {owners} are there {tail}", "?"), (f"Count the {owners} {tail}", "."), (f"Find the number of {owners} {tail}", ".")))),
                        f"SELECT COUNT(*) FROM {path.one.name} {where}", f"Count the rows of {path.one.name} {said}.", [path.one, source], "hard")  # fmt: skip
    if r.random() < 0.12:
        forms = [(f"How many {owners} have {r.choice(('a', 'at least one', 'any'))} {one}", "?"), (f"Count the number of different {owners} that have {nouns}", "."), (f"What is the number of {owners} with at least one {one}", "?")]
        return Question(_fill(r, *r.choice(forms)), f"SELECT COUNT(DISTINCT {column}) FROM {table}", f"Count distinct {column} of {table}.", [source], "medium")
    start, end = _ask(r, _list(r, chosen))
    question = r.choice((f"{start} of {r.choice(('', 'the ', 'all '))}{owners} {tail}", f"{start} of each {owner} that does not have any {one}"))
    names = [c.name for c in chosen]
    return Question(_fill(r, question, end), f"SELECT {', '.join(names)} FROM {path.one.name} {where}", f"Get {_joined(names)} from {path.one.name} {said}.", [path.one, source], "hard")


def owners_of(r: Random, path: Path) -> Question | None:
    """Columns of the rows of one table to which rows with a condition, or the first of an order, belong."""
    chosen, owner, owners, one, nouns = _columns(r, path.one)[:2], path.one.words, plural(path.one.words), path.many.words, plural(path.many.words)
    names = _full(path.one, chosen)
    numbers = path.many.of_kind("number") + path.many.of_kind("date")
    if numbers and r.random() < 0.45:
        column = r.choice(numbers)
        noun, down = _top(r, path.many, column, 1)
        start, end = _ask(r, _list(r, chosen, False), len(chosen) > 1)
        question = r.choice((f"{start} of the {owner} of the {noun}", f"{start} of the {owner} with the {noun}", f"{start} of the {owner} that the {noun} belongs to", f"{start} of the {owner} that has the {noun}"))
        return Question(_fill(r, question, end), f"SELECT {', '.join(names)} FROM {path.sql} ORDER BY {path.many.name}.{column.name} {'DESC' if down else 'ASC'} LIMIT 1",
                        f"Get {_joined(names)} from {path.goal}, {'descending' if down else 'ascending'} by {path.many.name}.{column.name}, first 1.", path.tables, "hard")  # fmt: skip
    found = condition(r, path.many)
    if not found:
        return None
    sql, goal = _of_table(path.many, found)
    distinct = r.random() < 0.35
    start, end = _ask(r, f"{r.choice(('different ', 'distinct ')) if distinct else ''}{_list(r, chosen)}")
    question = r.choice((f"{start} of {owners} that have {r.choice(('a ' + one, nouns, 'any ' + one))} {found.text}", f"{start} of the {owners} of {nouns} {found.text}", f"{start} of {owners} with {nouns} {found.text}", f"{start} of the {owner} of each {one} {found.text}"))
    said = f"{'distinct ' if distinct else ''}{_joined(names)}"
    return Question(_fill(r, question, end), f"SELECT {'DISTINCT ' if distinct else ''}{', '.join(names)} FROM {path.sql} WHERE {sql}", f"Get {said} from {path.goal} where {goal}.", path.tables, "medium")


MAKERS = [(by_owner, 34), (of_both, 12), (per_owner, 28), (missing, 12), (owners_of, 14)]
