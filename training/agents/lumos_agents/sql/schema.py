"""Random databases: tables, columns with kinds and names in several styles, rows, and their SQLite files."""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from .. import invent

ENTITIES = (
    "singer concert stadium student course teacher car maker flight airport airline employee shop museum visitor player match team ship "
    "dog owner pet city country property document template channel cartoon orchestra conductor movie book author publisher member "
    "loan hotel guest booking room patient doctor nurse hospital product customer order supplier warehouse store farm cow race "
    "driver circuit club coach school department professor project engineer bridge mountain river lake station train line artist "
    "painting gallery album song band festival restaurant dish recipe chef game company manager branch account bank client invoice "
    "ticket theater actor director series episode journal editor paper conference device phone building architect park tree plane "
    "pilot wine winery grape machine technician camera photo lens repair"
).split()
#: text columns: name and where its values come from
TEXTS = {
    "name": "name", "title": "title", "country": "country", "city": "city", "nationality": "country", "type": "word", "color": "color",
    "status": "status", "genre": "word", "position": "word", "category": "word", "brand": "word", "language": "word", "gender": "gender",
    "style": "word", "level": "level", "location": "city", "hometown": "city", "birthplace": "city", "code": "code", "model": "word",
    "owner": "name", "manager": "name", "description": "word", "theme": "word", "address": "city", "region": "word", "district": "word",
    "party": "word", "company": "word", "industry": "word", "school": "word", "team": "word", "club": "word", "result": "level",
    "format": "word", "material": "word", "season": "season", "state": "word", "major": "word", "rank": "level", "director": "name",
    "first name": "first", "last name": "last", "email": "word", "phone": "code", "label": "word", "sponsor": "word", "nickname": "word",
}  # fmt: skip
#: numeric columns: name and range
NUMBERS = {
    "age": (18, 70), "year": (1960, 2023), "price": (5, 900), "weight": (2, 300), "height": (100, 220), "capacity": (100, 9000),
    "salary": (900, 9000), "population": (1000, 99000), "rating": (1, 10), "score": (1, 100), "distance": (10, 4000), "length": (1, 900),
    "budget": (100, 9000), "points": (0, 200), "amount": (1, 5000), "size": (1, 400), "area": (10, 9000), "duration": (10, 300),
    "attendance": (100, 9000), "opening year": (1900, 2020), "founded": (1850, 2020), "pages": (80, 900), "speed": (20, 400),
    "horsepower": (50, 400), "credits": (1, 12), "floors": (1, 60), "votes": (10, 9000), "sales": (10, 9000), "share": (1, 50),
    "number of staff": (2, 300), "total cost": (10, 9000), "birth year": (1940, 2005), "wins": (0, 50), "goals": (0, 60),
    "bonus": (10, 900), "mileage": (1000, 90000), "stock": (0, 500), "depth": (2, 300), "elevation": (10, 4000), "quantity": (1, 90),
    "temperature": (1, 40), "revenue": (10, 9000), "profit": (1, 900), "rank": (1, 50), "likes": (1, 900), "rooms": (1, 90),
}  # fmt: skip
YEARS = {"year", "opening year", "founded", "birth year"}


@dataclass
class Column:
    """A column: its words in English, its name in the table, what its values are, and its SQL type."""

    words: str
    name: str
    kind: str  # key, ref, text or number
    source: str = "word"
    type: str = "text"
    low: int = 0
    high: int = 100


@dataclass
class Table:
    """A table with its columns and rows. `parent` is the table that its reference column refers to."""

    words: str
    name: str
    columns: list[Column]
    rows: list[list] = field(default_factory=list)
    parent: Table | None = None
    #: The tables that its reference columns refer to, in their order, and the two that a link joins.
    references: list[Table] = field(default_factory=list)
    links: tuple[Table, ...] = ()

    def of_kind(self, kind: str) -> list[Column]:
        """Returns the columns of a kind."""
        return [column for column in self.columns if column.kind == kind]

    def values(self, column: Column) -> list:
        """Returns the values of a column."""
        index = self.columns.index(column)
        return [row[index] for row in self.rows]


@dataclass
class Database:
    """A database, with the style of its names."""

    name: str
    tables: list[Table]
    style: str = "snake"


def plural(words: str) -> str:
    """Returns the plural of a noun."""
    if words.endswith("y") and words[-2] not in "aeiou":
        return words[:-1] + "ies"
    return words + ("es" if words.endswith(("s", "x", "ch", "sh")) else "s")


def styled(words: str, style: str) -> str:
    """Returns words as a name in a style."""
    parts = words.split()
    if style == "snake":
        return "_".join(parts)
    if style == "Snake":
        return "_".join(part.capitalize() for part in parts)
    if style == "Camel":
        return "".join(part.capitalize() for part in parts)
    if style == "camel":
        return parts[0] + "".join(part.capitalize() for part in parts[1:])
    return "_".join(parts).upper() if style == "UPPER" else "".join(parts)


def _value(r: Random, column: Column, pool: list[str]):  # noqa: ANN202
    source = column.source
    if column.kind == "number":
        whole = r.randint(column.low, column.high)
        return whole if column.type.startswith(("int", "big", "small", "year")) else round(whole + r.choice((0, 0.5, 0.25, 0.9)), 2)
    if source == "name":
        return invent.name(r)
    if source == "title":
        return invent.title(r)
    return r.choice(pool)


def _pool(r: Random, source: str) -> list[str]:
    fixed = {
        "gender": ["male", "female"] if r.random() < 0.5 else ["M", "F"],
        "color": ["red", "blue", "green", "black", "white", "silver", "yellow"],
        "status": ["open", "closed", "active", "pending", "completed"],
        "level": ["first", "second", "third", "final", "high", "low"],
        "season": ["Spring", "Summer", "Autumn", "Winter"],
        "country": invent.COUNTRIES, "first": invent.FIRST, "last": invent.LAST,
    }  # fmt: skip
    if source in fixed:
        return r.sample(fixed[source], min(len(fixed[source]), r.randint(2, 6)))
    if source == "city":
        return [invent.place(r) for _ in range(r.randint(3, 6))]
    if source == "code":
        return ["".join(r.choice("ABCDEFGHKLMNPRSTUVWXYZ") for _ in range(3)) for _ in range(8)]
    words = [invent.word(r) for _ in range(r.randint(3, 6))]
    return [word.capitalize() for word in words] if r.random() < 0.7 else words


def _column(r: Random, words: str, style: str, kind: str, prefix: str = "") -> Column:
    named = f"{prefix} {words}" if prefix else words
    spoken = named if prefix and r.random() < 0.5 else words
    if kind == "number":
        low, high = NUMBERS.get(words, (1, 500))
        type_ = r.choice(("int", "int", "int", "int", "float", "double", "decimal(10,2)", "int(11)"))
        if words in YEARS:
            type_ = r.choice(("int", "int(11)"))
        return Column(spoken, styled(named, style), kind, "number", type_, low, high)
    type_ = r.choice(("text", "text", "varchar(20)", "varchar(40)", "varchar(60)", "varchar(255)", "char(20)"))
    return Column(spoken, styled(named, style), kind, TEXTS.get(words, "word"), type_)


def _table(r: Random, words: str, style: str, parent: Table | None) -> Table:
    key = r.choice(("id", f"{words} id", f"{words} id", f"{words}id"))
    columns = [Column(f"{words} id", styled(key, style), "key", type=r.choice(("int", "int", "int(11)")))]
    if parent:
        columns.append(Column(f"{parent.words} id", parent.columns[0].name if "id" != parent.columns[0].words and len(parent.columns[0].name) > 3
                              else styled(f"{parent.words} id", style), "ref", type=columns[0].type))  # fmt: skip
    texts = r.sample(sorted(TEXTS), r.randint(1, 3))
    if r.random() < 0.75 and "name" not in texts and "title" not in texts:
        texts.insert(0, r.choice(("name", "name", "title")))
    numbers = r.sample(sorted(set(NUMBERS) - {"rank"}), r.randint(1, 3))
    if r.random() < 0.35:
        numbers.append(invent.word(r, 2))
    if r.random() < 0.25:
        texts.append(invent.word(r, 2))
    described = [_column(r, w, style, "text", words if r.random() < 0.2 else "") for w in texts]
    described += [_column(r, w, style, "number") for w in numbers]
    if r.random() < 0.5:
        r.shuffle(described)
    seen = {column.name.lower() for column in columns}
    for column in described:
        if column.name.lower() not in seen:
            seen.add(column.name.lower())
            columns.append(column)
    name = styled(plural(words) if r.random() < 0.3 else words, style)
    table = Table(words, name, columns, parent=parent)
    pools = {column.name: _pool(r, column.source) for column in columns}
    count = r.choice((4, 5, 6, 7, 8, 10, 12)) if r.random() < 0.9 else r.randint(20, 40)
    start = r.choice((1, 1, 1, 101, 1001))
    for index in range(count):
        row = [start + index]
        for column in columns[1:]:
            row.append(r.choice(parent.rows)[0] if column.kind == "ref" else _value(r, column, pools[column.name]))
        table.rows.append(row)
    return table


def draw(r: Random, number: int) -> Database:
    """Returns a random database of two to five tables, some of which refer to an earlier one."""
    style = r.choice(("snake", "snake", "snake", "Snake", "Snake", "Camel", "camel", "lower"))
    entities = r.sample(ENTITIES, r.randint(2, 5))
    if r.random() < 0.35:
        entities[r.randrange(len(entities))] = invent.word(r, 2)
    if r.random() < 0.2:
        at = r.randrange(len(entities))
        entities[at] = f"{r.choice(('new', 'local', 'car', 'school', 'city', 'game', 'music', 'sport'))} {entities[at]}"
    tables: list[Table] = []
    for words in entities:
        parent = r.choice(tables) if tables and r.random() < 0.6 else None
        tables.append(_table(r, words, style, parent))
    # Two parts, so that names differ even where the entities are the same.
    return Database(f"{'_'.join(entities[0].split())}_{number}", tables, style)


def extra_table(r: Random, database: Database) -> None:
    """Adds a table about something else."""
    database.tables.append(_table(r, r.choice(ENTITIES), database.style, None))


def write(database: Database, path: Path, strict: Random | None = None) -> None:
    """Writes a database as an SQLite file. With `strict`, some columns are `NOT NULL` or have a default."""
    path.unlink(missing_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        for table in database.tables:
            lines = []
            for index, column in enumerate(table.columns):
                end = " NOT NULL PRIMARY KEY" if column.kind == "key" else ""
                if strict and not end:
                    if strict.random() < 0.6 and all(row[index] is not None for row in table.rows):
                        end = " NOT NULL"
                    if strict.random() < 0.1:
                        end += f" DEFAULT '{'0' if column.kind in ('number', 'ref') else ''}'"
                end += " COLLATE NOCASE" if column.kind == "text" or column.type.startswith(("varchar", "char")) else ""
                lines.append(f"`{column.name}` {column.type}{end}")
            connection.execute(f"CREATE TABLE `{table.name}` ({', '.join(lines)})")
            marks = ", ".join("?" * len(table.columns))
            connection.executemany(f"INSERT INTO `{table.name}` VALUES ({marks})", table.rows)
    connection.close()
