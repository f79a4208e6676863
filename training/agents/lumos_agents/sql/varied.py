"""Names as in databases that grew over years: compound names, tables that link two others, and words of questions that no name contains.

`schema.draw` names a table or column after the words that questions use for it. `vary` changes a database so that both differ more often:

    table `singers_data` with `birth_country`, asked as "the nation of birth of each singer"
"""

from __future__ import annotations

import re
from random import Random

from .questions import Question
from .schema import NUMBERS, TEXTS, Column, Database, Table, extra_table, plural, styled

TABLE_ENDINGS = ("list", "data", "details", "info", "records", "names", "table", "catalog", "register", "profiles", "master")
TABLE_STARTS = ("ref", "all", "tbl", "main", "other", "current", "available", "registered", "known", "car", "tv", "student", "music", "local", "web", "course")
COLUMN_STARTS = (
    "first main home birth release official current total full short average maximum num start end local primary original other song show "
    "work base net gross head common public annual monthly last recent"
).split()
COLUMN_ENDINGS = ("in usd", "per year", "code", "type", "number", "value", "level", "details", "in metres", "total", "count", "text", "of record", "group")
#: Words of questions for columns with other names.
SPOKEN = {
    "country": ("nation", "home country"), "city": ("town", "home city"), "first name": ("given name", "forename"), "last name": ("family name", "surname"),
    "name": ("full name",), "capacity": ("seating capacity", "number of seats"), "salary": ("pay", "income"), "population": ("number of inhabitants", "number of people"),
    "price": ("cost",), "color": ("colour",), "gender": ("sex",), "phone": ("phone number", "telephone number"), "email": ("email address",),
    "address": ("street address",), "description": ("details", "text"), "hometown": ("home town", "town of origin"), "nationality": ("citizenship", "country of origin"),
    "horsepower": ("power",), "duration": ("running time", "length in minutes"), "attendance": ("number of visitors", "audience"), "founded": ("founding year", "year of foundation"),
    "location": ("place", "site"), "type": ("kind",), "category": ("kind",), "rating": ("score",), "score": ("result",), "position": ("role",), "points": ("score",),
    "amount": ("sum of money",), "credits": ("number of credits",), "pages": ("number of pages",), "floors": ("number of floors", "storeys"), "votes": ("number of votes",),
    "wins": ("number of wins", "victories"), "goals": ("number of goals",), "likes": ("number of likes",), "rooms": ("number of rooms",), "weight": ("mass",), "length": ("extent",),
    "stock": ("number in stock",), "speed": ("velocity", "top speed"), "quantity": ("number of units",), "birthplace": ("place of birth", "town of birth"), "major": ("field of study",),
    "language": ("tongue",), "size": ("extent",), "area": ("surface",), "elevation": ("altitude",), "depth": ("deepness",), "revenue": ("turnover", "income"), "profit": ("earnings",),
    "birth year": ("year of birth",), "opening year": ("year of opening",), "number of staff": ("number of employees", "headcount"), "total cost": ("overall cost", "cost"),
    "title": ("name",), "rank": ("place",), "status": ("state",), "distance": ("range",), "height": ("tallness",), "manager": ("boss", "name of the manager"), "owner": ("name of the owner",),
}  # fmt: skip


def _rename_table(r: Random, table: Table, style: str) -> None:
    words = table.words
    many = plural(words) if r.random() < 0.5 else words
    chance = r.random()
    if chance < 0.45:
        table.name = styled(f"{many} {r.choice(TABLE_ENDINGS)}", style)
    elif chance < 0.65:
        table.name = styled(f"{r.choice(TABLE_STARTS)} {many}", style)
    elif chance < 0.8:
        table.name = styled(f"ref {words} types", style)
        table.words = f"{words} type"
    else:
        start = r.choice(TABLE_STARTS[8:])
        table.name = styled(f"{start} {many}", style)
        table.words = f"{start} {words}"


def _rename_column(r: Random, column: Column, table: Table, style: str) -> None:
    words = column.words
    chance = r.random()
    if chance < 0.3:
        name, spoken = f"{table.words} {words}", r.choice((words, words, f"{table.words} {words}"))
    elif chance < 0.6:
        start = r.choice(COLUMN_STARTS)
        name, spoken = f"{start} {words}", r.choice((f"{start} {words}", words))
    elif chance < 0.8:
        end = r.choice(COLUMN_ENDINGS)
        name, spoken = f"{words} {end}", r.choice((f"{words} {end}", words, words))
    elif chance < 0.9:
        start = r.choice(COLUMN_STARTS)
        name, spoken = f"{table.words} {start} {words}", r.choice((words, f"{start} {words}"))
    else:
        short = "".join(part[0] for part in table.words.split()) if r.random() < 0.5 else table.words[:3]
        name, spoken = f"{short}{r.choice(('', ' '))}{words}", words
    column.name, column.words = styled(name, style), spoken


def _link(r: Random, one: Table, two: Table, style: str) -> Table:
    name = r.choice(("{a} in {b}", "{a} {b}", "{a}s in {b}", "{a} to {b}", "has {a}", "{b} {a}s", "{a} of {b}", "{a} {b} arrange", "{a} {b} map"))
    keys = [Column("", styled(f"{t.words} id", style), "ref", type=t.columns[0].type) for t in (one, two)]
    if keys[0].name == keys[1].name:
        keys.pop()
    table = Table("", styled(name.replace("{a}", one.words).replace("{b}", two.words), style), list(keys))
    for words in r.sample(sorted(NUMBERS) + sorted(TEXTS), r.choice((0, 0, 1, 2))):
        kind = "number" if words in NUMBERS else "text"
        table.columns.append(Column(words, styled(words, style), kind, type=r.choice(("int", "float") if kind == "number" else ("text", "varchar(20)"))))
    for _ in range(r.randint(3, 9)):
        row = [r.choice(t.rows)[0] for t in (one, two)][: len(keys)]
        table.rows.append(row + [r.randint(1, 90) if c.kind == "number" else r.choice(("a", "b", "c")) for c in table.columns[len(keys) :]])
    return table


def vary(r: Random, database: Database) -> None:
    """Changes the names of tables and columns and the words for them, and adds tables."""
    style = database.style
    for table in database.tables:
        for column in table.columns:
            if column.kind in ("text", "number"):
                before = column.name, column.words
                if r.random() < 0.35:
                    _rename_column(r, column, table, style)
                if column.words in SPOKEN and r.random() < 0.3:
                    column.words = r.choice(SPOKEN[column.words])
                if len({other.name.lower() for other in table.columns}) < len(table.columns):
                    column.name, column.words = before
        if r.random() < 0.4:
            _rename_table(r, table, style)
    tables = [table for table in database.tables if table.words]
    for _ in range(r.choice((0, 0, 0, 2, 3, 5))):
        extra_table(r, database)
    for _ in range(r.choice((0, 1, 1, 2))):
        if len(tables) > 1:
            database.tables.append(_link(r, *r.sample(tables, 2), style))
    names: set[str] = set()
    database.tables = [t for t in database.tables if t.name.lower() not in names and not names.add(t.name.lower())]


def slip(r: Random, question: Question, style: str) -> dict[str, str] | None:
    """Returns the goal and statement of a question with one wrong column name, of the kind that a planner gives by mistake."""
    table = question.tables[0]
    named = [c for c in table.columns if c.kind in ("text", "number") and re.search(rf"\b{re.escape(c.name)}\b", question.sql)]
    if not named:
        return None
    column = r.choice(named)
    parts = [part for part in re.split(r"_|(?<=[a-z])(?=[A-Z])", column.name) if part]
    choices = [styled(column.words, style), parts[-1], f"{column.name}_{parts[-1].lower()}", f"{table.name}_{column.name}", styled(f"{table.words} {column.words}", style)]
    wrong = r.choice(choices)
    if wrong.lower() in {c.name.lower() for t in question.tables for c in t.columns} | {t.name.lower() for t in question.tables}:
        return None
    change = lambda text: re.sub(rf"\b{re.escape(column.name)}\b", wrong, text)  # noqa: E731
    return {"goal": change(question.goal), "sql": change(question.sql)}
