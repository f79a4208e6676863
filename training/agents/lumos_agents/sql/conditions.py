"""Conditions on the columns of a table, in many forms."""

from __future__ import annotations

from random import Random

from .questions import Condition, _quoted
from .schema import Column, Table
from .wide import extremes

#: Words for genders, which questions often say without quotation marks.
SAID = {"F": "female", "M": "male", "female": "female", "male": "male"}
SIGNS = {
    ">": ("more than", "greater than", "over", "above", "higher than", "larger than", "bigger than", "exceeding", "that is more than"),
    "<": ("less than", "below", "under", "lower than", "smaller than", "fewer than", "that is less than"),
    ">=": ("at least", "no less than", "greater than or equal to", "{v} or more", "not less than"),
    "<=": ("at most", "no more than", "less than or equal to", "{v} or less", "up to"),
}  # fmt: skip


def is_people(table: Table) -> bool:
    """Says whether the rows of a table are people, by its columns."""
    return any(c.words in ("age", "gender", "sex", "first name", "last name", "nationality", "hire date", "birth year") for c in table.columns)


def said_value(r: Random, column: Column, value: object) -> str:
    """Returns a value as a question says it."""
    if isinstance(value, str):
        if value in SAID and column.source == "gender" and r.random() < 0.6:
            return SAID[value]
        return r.choice((value, value, value, f"'{value}'", f'"{value}"')) if "'" not in value else value
    return str(value)


def _text_condition(r: Random, table: Table, column: Column, value: str) -> Condition:
    name, words, chance = column.name, column.words, r.random()
    who = "who" if is_people(table) else r.choice(("that", "which"))
    if chance < 0.09:
        part = r.choice((value.split()[0], value[:1], value[:3], value.split()[-1]))
        place = r.choice(("contains", "contains", "starts", "ends"))
        said = {"contains": ("contains", "includes", "has the substring", "contains the word"), "starts": ("starts with", "begins with"), "ends": ("ends with",)}[place]
        word = r.choice(said)
        shown = r.choice((part, f"'{part}'", f"'{part}'", f'"{part}"', f"the letter '{part}'" if len(part) == 1 else f"'{part}'"))
        ing = {"contains": "containing", "includes": "including", "starts with": "starting with", "begins with": "beginning with", "ends with": "ending with"}.get(word, "containing")
        text = r.choice((f"whose {words} {word} {shown}", f"with {words} {ing} {shown}", f"with {shown} in their {words}" if place == "contains" else f"whose {words} {word} {shown}"))
        pattern = {"contains": f"%{part}%", "starts": f"{part}%", "ends": f"%{part}"}[place]
        goal = {"contains": "contains", "starts": "starts with", "ends": "ends with"}[place]
        return Condition(text, f"{name} LIKE {_quoted(pattern)}", f"{name} {goal} {_quoted(part)}")
    shown = said_value(r, column, value)
    if chance < 0.18:
        text = r.choice((f"whose {words} is not {shown}", f"that do not have {words} {shown}", f"with a {words} other than {shown}", f"{who} are not {shown}" if column.source == "choice" else f"not with {words} {shown}",
                         f"except those with {words} {shown}", f"whose {words} does not equal {shown}"))  # fmt: skip
        return Condition(text, f"{name} != {_quoted(value)}", f"{name} is not {_quoted(value)}")
    forms = [f"whose {words} is {shown}", f"with {words} {shown}", f"with the {words} {shown}", f"that have {words} {shown}", f"with {shown} as {words}", f"of {words} {shown}", f"in {words} {shown}",
             f"where the {words} is {shown}", f"with a {words} of {shown}", f"having {shown} {words}", f"{who} have {shown} as their {words}", f"under {words} {shown}"]  # fmt: skip
    if column.source in ("country", "city") or words.split()[-1] in ("city", "country", "location", "state", "district"):
        forms += [f"from {shown}", f"in {shown}", f"located in {shown}", f"{who} are from {shown}", f"based in {shown}", f"in the {words} {shown}", f"in the {words} of {shown}", f"that are in {shown}"] * 2
    if column.source in ("name", "title", "first", "last"):
        forms += [f"named {shown}", f"called {shown}", f"with the {words} {shown}", f"by the name of {shown}"] * 3
    if column.source in ("choice", "gender"):
        forms += [f"{who} are {shown}", f"that are {shown}", f"with {shown} {words}"] * 2
    return Condition(r.choice(forms), f"{name} = {_quoted(value)}", f"{name} is {_quoted(value)}")


def _number_condition(r: Random, table: Table, column: Column) -> Condition:
    name, words, values = column.name, column.words, table.values(column)
    low, high = int(min(values)), int(max(values))
    value = r.choice(values) if r.random() < 0.4 else r.randint(low, max(low, high))
    if r.random() < 0.3 and value > 100 and column.source != "year":
        value = max(1, round(int(value), -2))
    year, chance = column.source == "year", r.random()
    who = "who" if is_people(table) else "that"
    if chance < 0.13:
        first, second = sorted((value, r.randint(low, max(low, high))))
        text = r.choice((f"with {words} between {first} and {second}", f"whose {words} is between {first} and {second}", f"with a {words} from {first} to {second}", f"{who} have {words} between {first} and {second}",
                         f"between {first} and {second}" if year else f"with {words} in the range of {first} to {second}"))  # fmt: skip
        return Condition(text, f"{name} BETWEEN {first} AND {second}", f"{name} between {first} and {second}")
    if chance < 0.34 or (year and chance < 0.6):
        text = r.choice((f"with {words} {value}", f"whose {words} is {value}", f"that have {words} {value}", f"with a {words} of {value}", f"whose {words} equals {value}", f"where {words} is {value}"))
        if year and r.random() < 0.7:
            text = r.choice((f"in {value}", f"in the year {value}", f"from {value}", f"of the year {value}", f"from the year {value}"))
        return Condition(text, f"{name} = {value}", f"{name} is {value}")
    sign = r.choices((">", "<", ">=", "<="), (45, 32, 14, 9))[0]
    word = r.choice(SIGNS[sign])
    pair = extremes(column)
    if words == "age" and sign in "<>" and r.random() < 0.6:
        text = r.choice((f"{'older' if sign == '>' else 'younger'} than {value}", f"{who} are {'older' if sign == '>' else 'younger'} than {value}", f"{'over' if sign == '>' else 'under'} the age of {value}", f"aged {'over' if sign == '>' else 'under'} {value}"))
    elif year and sign in "<>" and r.random() < 0.75:
        near = "after" if sign == ">" else "before"
        text = r.choice((f"{near} {value}", f"{near} the year {value}", f"whose {words} is {near} {value}", f"with {words} {near} {value}"))
    elif words.startswith("number of ") and r.random() < 0.6:
        thing = words.removeprefix("number of ")
        amount = word.replace("{v}", str(value)) if "{v}" in word else f"{word.removeprefix('that is ')} {value}"
        text = r.choice((f"with {amount} {thing}", f"that have {amount} {thing}", f"{who} have {amount} {thing}"))
    elif pair and words.split()[-1] in ("weight", "height", "length", "speed", "size") and sign in "<>" and r.random() < 0.2:
        more = {"heaviest": "heavier", "lightest": "lighter", "tallest": "taller", "shortest": "shorter", "longest": "longer", "fastest": "faster", "slowest": "slower", "largest": "larger", "smallest": "smaller"}
        text = f"{who} are {more[pair[0 if sign == '>' else 1]]} than {value}"
    elif "{v}" in word:
        text = r.choice((f"with a {words} of {word.replace('{v}', str(value))}", f"whose {words} is {word.replace('{v}', str(value))}"))
    else:
        text = r.choice((f"whose {words} is {word} {value}", f"with {words} {word} {value}", f"that have {words} {word} {value}", f"with a {words} {word} {value}", f"where the {words} is {word} {value}",
                         f"{who} have a {words} {word} {value}", f"having {words} {word} {value}", f"with a {words} of {word} {value}"))  # fmt: skip
        text = text.replace("is that is", "is").replace("of that is", "of")
    return Condition(text, f"{name} {sign} {value}", f"{name} {sign} {value}")


def _date_condition(r: Random, table: Table, column: Column) -> Condition:
    name, words, value = column.name, column.words, r.choice(table.values(column))
    day, year = value[:10], value[:4]
    sign = r.choice("<>")
    near = "after" if sign == ">" else "before"
    chance = r.random()
    if chance < 0.35:
        text = r.choice((f"whose {words} is in {year}", f"with {words} in {year}", f"with {words} in the year {year}"))
        return Condition(text, f"{name} LIKE '{year}%'", f"{name} starts with '{year}'")
    if chance < 0.55:
        return Condition(r.choice((f"whose {words} is {value}", f"with {words} '{value}'", f"with {words} {value}")), f"{name} = '{value}'", f"{name} is '{value}'")
    shown = r.choice((day, f"'{day}'", day))
    text = r.choice((f"whose {words} is {near} {shown}", f"with {words} {near} {shown}", f"with a {words} {'later' if sign == '>' else 'earlier'} than {shown}"))
    return Condition(text, f"{name} {sign} '{day}'", f"{name} {sign} '{day}'")


def condition(r: Random, table: Table) -> Condition | None:
    """Returns a condition on a column of a table."""
    choices = [(c, w) for c in table.columns for w in [{"text": 4, "number": 4, "date": 1}.get(c.kind, 0)] if w]
    if not choices:
        return None
    column = r.choices([c for c, _ in choices], [w for _, w in choices])[0]
    if column.kind == "number":
        return _number_condition(r, table, column)
    if column.kind == "date":
        return _date_condition(r, table, column)
    return _text_condition(r, table, column, r.choice(table.values(column)))


def _either(r: Random, table: Table) -> Condition | None:
    """Returns a condition that a column has one of two values."""
    texts = [c for c in table.of_kind("text") if len(set(table.values(c))) > 1]
    if not texts:
        return None
    column = r.choice(texts)
    one, two = r.sample(sorted(set(table.values(column))), 2)
    first, second, name, words = said_value(r, column, one), said_value(r, column, two), column.name, column.words
    text = r.choice((f"whose {words} is {first} or {second}", f"whose {words} is either {first} or {second}", f"with {words} {first} or {second}", f"that have either {first} or {second} as {words}", f"with {words} of {first} or {second}"))
    return Condition(text, f"{name} = {_quoted(one)} OR {name} = {_quoted(two)}", f"{name} is {_quoted(one)} or {name} is {_quoted(two)}")


def conditions(r: Random, table: Table, share: float = 1.0) -> tuple[str, str, str]:
    """Returns a condition, two, or none, with the blank before it, as it follows the noun, in SQL, and in the planner's words."""
    if r.random() >= share:
        return "", "", ""
    found = _either(r, table) if r.random() < 0.07 else condition(r, table)
    if found is None:
        return "", "", ""
    if " OR " not in found.sql and r.random() < 0.2:
        second = condition(r, table)
        if second and second.sql.split()[0] != found.sql.split()[0]:
            word = r.choice(("and", "and", "and", "or"))
            link = r.choice(("and", "and", ", and", "and also", "but")) if word == "and" else r.choice(("or", "or", ", or"))
            text = f"{found.text}{'' if link[0] == ',' else ' '}{link} {second.text}"
            found = Condition(text, f"{found.sql} {word.upper()} {second.sql}", f"{found.goal} {word} {second.goal}")
    return f" {found.text}", f" WHERE {found.sql}", f" where {found.goal}"
