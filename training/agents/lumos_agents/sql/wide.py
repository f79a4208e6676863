"""Databases of many areas: two to eight tables with realistic names, keys with other names than the columns that refer to them, and tables that link two others.

Names have a style for each database, prefixes, and abbreviations; a part of the tables and columns is named after nouns of real paragraphs.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

from .. import invent
from . import vocabulary
from .questions import Question
from .schema import Column, Database, Table, styled
from .vocabulary import ABBREVIATIONS, EXTREMES, SYNONYMS, Entity, Field, plural

STYLES = ("snake", "snake", "snake", "Snake", "Snake", "Camel", "Camel", "camel", "camel", "lower", "UPPER", "title")
WORDS = re.compile(
    "^(?:abort|action|add|all|alter|and|as|asc|between|by|cascade|case|cast|change|character|check|class|column|condition|cross|current|database|default|delete|desc|describe|distinct|div|"
    "do|drop|each|element|else|end|escape|exists|explain|fetch|for|from|full|function|general|glob|grant|group|groups|having|if|in|index|inner|insert|int|interval|into|is|join|key|keys|language|lead|left|"
    "leave|like|limit|lines|load|lock|loop|match|mod|natural|no|not|null|of|offset|on|option|or|order|outer|over|partition|plan|position|primary|range|rank|read|real|recursive|references|regexp|release|"
    "rename|replace|require|right|row|rows|schema|select|set|show|signal|sql|system|table|text|then|to|transaction|trigger|union|unique|update|use|using|values|view|virtual|when|where|window|with|write)$"
)  # fmt: skip
#: Words that are tables nowhere, because the database reserves them; columns may be called so where it does not.
FREE = {"text", "position", "language", "rank", "class", "title", "range", "current", "full", "element", "character", "condition", "general", "view", "action", "plan", "function", "read"}
TYPES = {
    "number": ("int", "int", "int", "int", "int(11)", "bigint(20)", "smallint(6)", "float", "double", "decimal(10,2)", "decimal(19,4)", "real"),
    "text": ("text", "text", "text", "varchar(20)", "varchar(40)", "varchar(50)", "varchar(80)", "varchar(100)", "varchar(120)", "varchar(255)", "char(15)", "char(20)", "longtext"),
    "date": ("date", "date", "datetime", "text", "varchar(20)", "timestamp"),
}  # fmt: skip
PLACES = ("city", "town", "hometown", "location", "birthplace", "origin", "headquarters", "destination", "capital", "district", "place", "street", "seat", "source")
WORDY = ("title", "theme", "theme", "topic", "summary", "comment")


@dataclass
class Wide:
    """What is the same in all tables of a database."""

    style: str
    many: bool
    key: str
    prefix: float
    short: float
    nouns: list[str] = field(default_factory=list)


def _short(r: Random, words: str, share: float) -> str:
    for long, forms in ABBREVIATIONS.items():
        if long in words and r.random() < share:
            words = re.sub(rf"\b{long}\b", r.choice(forms), words)
    return words


def _named(r: Random, words: str, wide: Wide, table: bool = False) -> str:
    style = wide.style
    words = re.sub(r"[^a-z0-9 ]", " ", _short(r, words, wide.short).lower())
    if style == "title":
        style = "Camel" if table else "snake"
    elif not table and r.random() < 0.04:
        style = r.choice(("snake", "Camel", "lower"))
    name = styled(words, style)
    if WORDS.match(name.lower()) and (table or name.lower() not in FREE):
        name = styled(plural(words) if table and not WORDS.match(plural(words)) else f"{words} {r.choice(('info', 'value', 'name', 'data'))}", style)
    return name


def _pool(r: Random, spec: Field, wide: Wide) -> tuple[str, list]:
    """Returns the kind of a text column's values, and the values to choose from."""
    last, words = spec.words.split()[-1], spec.words
    if spec.values:
        return "choice", list(spec.values)
    if spec.person:
        return "name", [invent.name(r) for _ in range(12)]
    if words == "gender":
        return "gender", r.choice((["F", "M"], ["male", "female"], ["Female", "Male"]))
    if words == "first name":
        return "first", r.sample(invent.FIRST, 8)
    if words == "last name":
        return "last", r.sample(invent.LAST, 6) + [invent.word(r).capitalize() for _ in range(3)]
    if last in ("country", "nationality", "citizenship", "flag", "nation"):
        return "country", r.sample(invent.COUNTRIES, r.randint(2, 6))
    if last in PLACES:
        return "city", [invent.place(r) for _ in range(r.randint(3, 7))]
    if last in ("code", "symbol", "abbreviation", "acronym", "partition"):
        return "code", ["".join(r.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(r.choice((2, 3, 3)))) for _ in range(8)]
    if last == "email":
        return "mail", [f"{invent.word(r)}@{invent.word(r, 2)}.{r.choice(('com', 'org', 'net'))}" for _ in range(8)]
    if last in ("number", "phone", "isbn", "plate"):
        digits = lambda n: "".join(r.choice("0123456789") for _ in range(n))  # noqa: E731
        return "digits", [f"{digits(3)}-{digits(4)}" if r.random() < 0.5 else f"{digits(2)}{digits(3)}" for _ in range(9)]
    if last in WORDY:
        return "title", [invent.title(r) for _ in range(12)]
    if last == "color":
        return "color", r.sample(["red", "blue", "green", "black", "white", "silver", "yellow", "brown", "grey"], 4)
    if last == "name":
        return "name", []
    number = r.randint(3, 6)
    if wide.nouns and r.random() < 0.6:
        values = [" ".join(r.sample(wide.nouns, r.choice((1, 1, 2)))) for _ in range(number)]
    else:
        values = [invent.word(r) for _ in range(number)]
    return "word", [value.title() for value in values] if r.random() < 0.7 else values


def _thing(r: Random, entity: Entity, wide: Wide) -> list[str]:
    """Returns the names of an entity's rows."""
    person = any(f.words in ("age", "gender", "birth year", "birth date", "date of birth", "nationality", "hire date", "salary") for f in entity.fields)
    if person:
        return [invent.name(r) if r.random() < 0.8 else r.choice(invent.LAST) for _ in range(40)]
    draw = r.choice((invent.title, invent.place, lambda r: invent.word(r).capitalize(), lambda r: " ".join(r.sample(wide.nouns, 2)).title() if wide.nouns else invent.title(r)))
    return [draw(r) for _ in range(40)]


def _date(r: Random, type_: str) -> str:
    day = f"{r.randint(1970, 2023)}-{r.randint(1, 12):02}-{r.randint(1, 28):02}"
    return f"{day} {r.randint(0, 23):02}:{r.randint(0, 59):02}:00" if type_ in ("datetime", "timestamp") else day


def _column(r: Random, spec: Field, entity: Entity, wide: Wide) -> tuple[Column, list]:
    words = name = spec.words
    if name in ("name", "title", "type", "description", "details", "code", "status", "date") and r.random() < wide.prefix:
        name = f"{entity.words} {name}"
    elif r.random() < wide.prefix * 0.25:
        name = f"{entity.words} {name}"
    elif r.random() < 0.05:
        name = f"{r.choice(('main', 'total', 'full', 'official', 'current', 'primary', 'other', 'last'))} {name}"
        words = r.choice((name, words))
    if name.startswith("number of ") and r.random() < 0.5:
        name = name.removeprefix("number of ") if r.random() < 0.4 else "num " + name.removeprefix("number of ")
    if name.startswith("date of ") and r.random() < 0.5:
        name = name.removeprefix("date of ") + " date"
    name = name.replace(" of ", r.choice((" of ", " of ", " "))).replace(" in ", r.choice((" in ", " ")))
    spoken = words
    for known, others in SYNONYMS.items():
        if (words == known or words.endswith(f" {known}")) and r.random() < 0.15:
            spoken = words[: len(words) - len(known)] + r.choice(others)
            break
    else:
        if name.startswith(f"{entity.words} ") and words == spec.words and r.random() < 0.35:
            spoken = name
    type_ = r.choice(TYPES[spec.kind])
    if spec.kind == "number":
        if "year" in words or "number" in words or spec.high - spec.low < 12 or spec.high > 20000:
            type_ = r.choice(("int", "int", "int(11)", "bigint(20)"))
        return Column(spoken, _named(r, name, wide), "number", "year" if spec.low >= 1000 and spec.high < 2030 else "number", type_, spec.low, spec.high), []
    if spec.kind == "date":
        return Column(spoken, _named(r, name, wide), "date", "date", type_), []
    source, pool = _pool(r, spec, wide)
    if source == "choice":
        type_ = r.choice((type_, "varchar(10)", "char(1)" if all(len(v) == 1 for v in pool) else "varchar(15)"))
    return Column(spoken, _named(r, name, wide), "text", source, type_), pool


def _random_entity(r: Random, wide: Wide) -> Entity:
    """Returns an entity named after nouns, with columns of several areas and nouns."""
    words = " ".join(r.sample(wide.nouns, 1 if r.random() < 0.7 else 2)) if wide.nouns and r.random() < 0.7 else invent.word(r, 2)
    entity = Entity(words, [], [], [Field(r.choice(("name", "title", "name", "code")), "text")])
    every = [f for area in vocabulary.ENTITIES.values() for e in area for f in e.fields]
    entity.fields += r.sample(every, r.randint(2, 6))
    return entity


def _extra_fields(r: Random, wide: Wide) -> list[Field]:
    fields = []
    while wide.nouns and r.random() < 0.3:
        words = " ".join(r.sample(wide.nouns, r.choice((1, 2, 2))))
        fields.append(Field(words, "number", 1, r.choice((20, 900, 90000))) if r.random() < 0.5 else Field(words, "text"))
    return fields


def _table(r: Random, entity: Entity, wide: Wide, parents: list[Table]) -> Table:
    words = r.choice(entity.others) if entity.others and r.random() < 0.25 else entity.words
    name = entity.words if r.random() < 0.85 else words
    chance = r.random()
    if chance < 0.06:
        name = f"{name} {r.choice(('list', 'data', 'details', 'info', 'records', 'names'))}"
    elif chance < 0.09:
        name = f"{r.choice(('ref', 'tbl', 'all', 'other'))} {name}"
    elif wide.many != (r.random() < 0.08):
        name = plural(name)
    table = Table(words, _named(r, name, wide, True), [])
    fields = list(entity.fields) + _extra_fields(r, wide)
    label = [f for f in fields[:2] if f.kind == "text"]
    others = [f for f in fields if f not in label]
    fields = label + sorted(r.sample(others, min(len(others), r.choice((1, 2, 3, 4, 5, 6, 8, 12)))), key=fields.index)
    if r.random() < 0.2:
        r.shuffle(fields)
    key_words = {"id": "id", "own": f"{entity.words} id", "code": f"{entity.words} code", "number": f"{entity.words} number", "uid": "uid"}[wide.key if r.random() < 0.9 else "own"]
    text_key = key_words.endswith("code") or r.random() < 0.03
    if wide.short and key_words.endswith("id") and r.random() < wide.short:
        key_words = f"{entity.words[:3]} id"
    key_type = r.choice(("varchar(10)", "varchar(3)", "char(15)")) if text_key else r.choice(("int", "int", "int(11)"))
    spoken = "code" if text_key and r.random() < 0.4 else "number" if wide.key == "number" and r.random() < 0.3 else r.choice(("id", f"{words} id"))
    table.columns = [Column(spoken, _named(r, key_words, wide), "key", type=key_type)]
    pools: list[list] = [[]]
    for parent in parents:
        key = parent.columns[0]
        plain = key.name.lower() in ("id", "uid", "code", "number")
        chance = r.random()
        if plain or chance < 0.25:
            reference = r.choice((f"{parent.words} id", f"{parent.words} id", parent.words, f"{r.choice(('home', 'main', 'primary', 'used', 'host', 'in'))} {parent.words}"))
            reference = _named(r, reference, wide)
        else:
            reference = key.name
        table.columns.append(Column(f"{parent.words} id", reference, "ref", type=key.type))
        pools.append([])
    things = _thing(r, entity, wide)
    for spec in fields:
        column, pool = _column(r, spec, entity, wide)
        if column.name.lower() not in {c.name.lower() for c in table.columns}:
            table.columns.append(column)
            pools.append(pool or things)
    table.columns = [c for i, c in enumerate(table.columns) if c.name.lower() not in {o.name.lower() for o in table.columns[:i]}]
    if len(table.columns) != len(pools):
        return _table(r, entity, wide, parents)
    if parents:
        table.parent = parents[0]
    for index in range(r.choice((4, 5, 6, 7, 8, 10, 12)) if r.random() < 0.93 else r.randint(15, 50)):
        row: list = ["".join(r.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(3)) + str(index) if text_key else index + 1]
        for at, (column, pool) in enumerate(zip(table.columns[1:], pools[1:], strict=True)):
            if column.kind == "ref":
                row.append(r.choice(parents[at].rows)[0])
            elif column.kind == "number":
                whole = r.randint(column.low, column.high)
                row.append(whole if "int" in column.type else round(whole + r.choice((0, 0.5, 0.25, 0.9)), 2))
            elif column.kind == "date":
                row.append(_date(r, column.type))
            else:
                row.append(r.choice(pool))
        table.rows.append(row)
    table.references = list(parents)
    return table


def _link(r: Random, one: Table, two: Table, wide: Wide) -> Table:
    name = r.choice(("{a} {b}", "{a} in {b}", "has {b}", "{a} {b} map", "{a} to {b}", "{b} of {a}", "{a} {b} link", "plays {b}", "{a} with {b}", "{b} list of {a}"))
    columns = []
    for table in (one, two):
        key = table.columns[0]
        plain = key.name.lower() in ("id", "uid", "code", "number")
        columns.append(Column("", _named(r, f"{table.words} id", wide) if plain or r.random() < 0.2 else key.name, "ref", type=key.type))
    if columns[0].name.lower() == columns[1].name.lower():
        columns[1].name = f"{columns[1].name}2"
    link = Table("", _named(r, name.replace("{a}", one.words).replace("{b}", two.words), wide, True), columns)
    pairs = [(a[0], b[0]) for a in one.rows for b in two.rows]
    link.rows = [list(pair) for pair in r.sample(pairs, min(len(pairs), r.randint(4, 14)))]
    if r.random() < 0.3:
        link.columns.append(Column("year", _named(r, r.choice(("year", "since", "start date", "date from")), wide), "ref", type="int"))
        for row in link.rows:
            row.append(r.randint(1990, 2023))
    link.links = (one, two)
    return link


def draw(r: Random, number: int, nouns: list[str]) -> Database:
    """Returns a random database."""
    style = r.choice(STYLES)
    wide = Wide(style, r.random() < 0.4, r.choices(("id", "own", "code", "number", "uid"), (35, 50, 6, 5, 2))[0], r.choice((0, 0, 0.4, 0.9)), r.choice((0, 0, 0, 0.5, 0.9)), nouns)
    pool = list(vocabulary.ENTITIES[r.choice(sorted(vocabulary.ENTITIES))])
    if r.random() < 0.35:
        pool += r.sample(vocabulary.ENTITIES[r.choice(sorted(vocabulary.ENTITIES))], 2)
    entities = r.sample(pool, min(len(pool), r.choice((2, 2, 3, 3, 3, 4, 4, 5, 6))))
    for at in range(len(entities)):
        if r.random() < 0.12:
            entities[at] = _random_entity(r, wide)
    # Parents first, so that references find their rows.
    names = [e.words for e in entities]
    entities.sort(key=lambda e: sum(p in names for p in e.parents))
    tables: dict[str, Table] = {}
    for entity in entities:
        parents = [tables[p] for p in entity.parents if p in tables]
        if not parents and tables and r.random() < 0.5:
            parents = [r.choice(list(tables.values()))]
        table = _table(r, entity, wide, parents[:2])
        if table.name.lower() not in {t.name.lower() for t in tables.values()}:
            tables[entity.words] = table
    found = list(tables.values())
    for _ in range(r.choice((0, 0, 1, 1, 2))):
        if len(found) > 1:
            link = _link(r, *r.sample(found, 2), wide)
            if link.name.lower() not in {t.name.lower() for t in tables.values()}:
                tables[link.name] = link
    every = list(tables.values())
    r.shuffle(every)
    stem = re.sub(r"\W+", "_", r.choice(entities).words) if r.random() < 0.8 else invent.word(r, 2)
    return Database(f"{stem}_{number}", every, "snake" if style == "title" else style)


def wrong_table(r: Random, question: Question, database: Database) -> str | None:
    """Returns a name of the kind that a planner gives a table by mistake, and that no table has."""
    table = r.choice(question.tables)
    words = table.words or table.name
    parts = [part for part in re.split(r"_|(?<=[a-z])(?=[A-Z])", table.name) if part]
    column = r.choice(table.columns)
    wrong = r.choice((styled(words, database.style), styled(plural(words), database.style), parts[-1], parts[0], plural(table.name), table.name.removesuffix("s"), f"{table.name}_{column.name}", column.name))
    return wrong if wrong.lower() not in {t.name.lower() for t in database.tables} and re.fullmatch(r"\w+", wrong) and not WORDS.match(wrong.lower()) else None


def wrong_column(r: Random, question: Question, database: Database) -> dict[str, str] | None:
    """Returns the goal and statement of a question with a column of another table in the place of one."""
    here = {c.name.lower() for t in question.tables for c in t.columns} | {t.name.lower() for t in question.tables}
    others = [c.name for t in database.tables for c in t.columns if c.name.lower() not in here]
    named = [c.name for t in question.tables for c in t.columns if c.kind in ("text", "number", "date") and re.search(rf"\b{c.name}\b", question.sql)]
    named = [name for name in named if name.lower() not in {t.name.lower() for t in question.tables}]
    if not others or not named:
        return None
    name, wrong = r.choice(named), r.choice(others)
    change = lambda text: re.sub(rf"\b{name}\b", wrong, text)  # noqa: E731
    return {"goal": change(question.goal), "sql": change(question.sql)}


def extremes(column: Column) -> tuple[str, str] | None:
    """Returns the adjectives for the largest and smallest value of a column."""
    return EXTREMES.get(column.words) or EXTREMES.get(column.words.split()[-1])
