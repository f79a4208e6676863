"""More kinds of questions, of the easy and medium level of courses on SQL, in forms that are put together from parts.

As in `questions.py`, each has its SQL and the planner's words, which name tables and columns as the database does.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from . import questions
from .conditions import condition, conditions, is_people
from .questions import AGGREGATES, Question, _joined
from .schema import Column, Database, Table
from .vocabulary import plural
from .wide import extremes

MOST = {"average": ("average", "average", "mean"), "maximum": ("maximum", "maximum", "largest", "highest", "max", "greatest"), "minimum": ("minimum", "minimum", "smallest", "lowest", "min"),
        "sum": ("total", "total", "sum of", "combined")}  # fmt: skip


def _shows(r: Random, columns: list[Column], pick: int) -> list[Column]:
    labels = [c for c in columns if c.source in ("name", "title", "first", "last") or c.words.split()[-1] in ("name", "title")]
    weights = [4 if c in labels else 2 if c.kind == "text" else 1 for c in columns]
    chosen: list[Column] = []
    while len(chosen) < min(pick, len(columns)):
        column = r.choices(columns, weights)[0]
        if column not in chosen:
            chosen.append(column)
    return chosen


def _columns(r: Random, table: Table) -> list[Column]:
    """Returns columns to show, labels more often than others."""
    columns = [c for c in table.columns if c.kind in ("text", "number", "date") or (c.kind == "key" and r.random() < 0.35)]
    return _shows(r, columns, r.choice((1, 1, 1, 1, 2, 2, 2, 3, 3, 4)))


def _list(r: Random, columns: list[Column], many: bool | None = None) -> str:
    several = r.random() < 0.6 if many is None else many
    words = [plural(c.words) if several else c.words for c in columns]
    if len(words) == 2 and r.random() < 0.15:
        return f"{words[0]} {r.choice(('as well as', 'together with', 'along with'))} {words[1]}"
    if len(words) > 1 and r.random() < 0.08:
        return _joined([words[0], *[f"the {w}" for w in words[1:]]])
    if len(words) > 2 and r.random() < 0.5:
        return ", ".join(words[:-1]) + " and " + words[-1]
    return _joined(words)


def _ask(r: Random, what: str, several: bool = True) -> tuple[str, str]:
    """Returns the beginning of a question for `the what`, and its end."""
    be = "are" if several else "is"
    start = r.choice((f"What {be} the", f"What {be} the", "Show the", "Find the", "List the", "Give the", "Return the", "Show me the", "Give me the", "Tell me the", "Please show the", "Please list the", "Display the",
                      "Find out the", "I want to know the", "Show all the" if several else "Show the", "Can you list the", "List out the", "Get the", "Report the", "Select the"))  # fmt: skip
    return f"{start} {what}", "?" if start.startswith(("What", "Can")) else "."


def _fill(r: Random, text: str, end: str) -> str:
    if r.random() < 0.02:
        text = text.lower()
    return text + (end if r.random() < 0.97 else "")


def _of(r: Random, table: Table, text: str = "") -> str:
    one, many = table.words, plural(table.words)
    return r.choice((f"of all {many}", f"of all the {many}", f"of the {many}", f"of {many}", f"of {many}", f"for all {many}", f"for {many}", f"of each {one}", f"for each {one}", f"of every {one}")) + text


def _order(r: Random, table: Table) -> tuple[str, str, str]:
    """Returns an order as it ends the question, in SQL, and in the planner's words."""
    column = r.choice([c for c in table.columns if c.kind in ("text", "number", "date")])
    words, name, down = column.words, column.name, r.random() < 0.5
    if column.kind == "text" and r.random() < 0.6:
        down = r.random() < 0.1
        text = r.choice((" in alphabetical order", f" in alphabetical order of {words}", f" ordered by {words} alphabetically", f" sorted by {words} in alphabetical order", f" in alphabetical order by {words}", f", sorted alphabetically by {words}"))
        if down:
            text = f" in reverse alphabetical order of {words}"
        elif text.endswith("alphabetical order") and "sorted" not in text:
            text += f" of their {words}"
    else:
        direction = r.choice(("descending", "descending", "decreasing")) if down else r.choice(("ascending", "ascending", "increasing"))
        text = r.choice((f" in {direction} order of {words}", f" ordered by {words} in {direction} order", f", sorted by {words} in {direction} order", f" in {direction} order of their {words}", f" sorted in {direction} order of {words}",
                         f" in {direction} order by {words}", f", ordered by {words} {direction}", f" sorted by {words} {direction}"))  # fmt: skip
        pair = extremes(column)
        if not down and r.random() < 0.3:
            text = r.choice((f" ordered by {words}", f", sorted by {words}", f" sorted by their {words}", f" ordered by their {words}"))
        elif pair and r.random() < 0.3:
            first, last = pair if down else pair[::-1]
            text = f"{r.choice((' ordered by ' + words, ' sorted by ' + words, ''))} from {r.choice(('the ', ''))}{first} to {r.choice(('the ', ''))}{last}"
        elif column.kind == "number" and r.random() < 0.15:
            text = r.choice((" from the highest to the lowest {}", " from high to low {}", " from largest to smallest {}") if down else (" from the lowest to the highest {}", " from low to high {}", " from smallest to largest {}")).format(words)
    return text, f" ORDER BY {name} {'DESC' if down else 'ASC'}", f", {'descending' if down else 'ascending'} by {name}"


def select(r: Random, table: Table) -> Question:
    """Selects columns, perhaps distinct, with conditions and an order."""
    chosen = _columns(r, table)
    text, where, goal = conditions(r, table, 0.6)
    one, nouns = table.words, plural(table.words)
    distinct = len(chosen) < 3 and r.random() < 0.12
    word = r.choice(("distinct ", "different ", "unique ", "different ")) if distinct else ""
    several = r.random() < 0.6
    what = f"{word}{_list(r, chosen, several or distinct)}"
    start, end = _ask(r, what, several or len(chosen) > 1 or distinct)
    chance = r.random()
    if chance < 0.62:
        question = f"{start} {_of(r, table, text)}"
    elif chance < 0.7 and not distinct:
        question, end = f"For {r.choice(('each', 'every'))} {one}{text}, {r.choice(('show', 'list', 'what are', 'return', 'give'))} {r.choice(('the', 'its', 'their', 'the'))} {_list(r, chosen)}", "."
    elif chance < 0.78 and text:
        question = f"{_ask(r, nouns)[0]}{text}, {r.choice(('and show', 'giving', 'with', 'showing'))} their {what}"
    elif chance < 0.84 and not text:
        question = f"{r.choice(('Show all', 'List all', 'Find all', 'Return all', 'List', 'Show'))} {one} {_list(r, chosen, True)}" if not distinct else f"{start} {_of(r, table)}"
        end = "."
    elif chance < 0.93 and text and not distinct:
        be, ask = ("is", "the " + one) if r.random() < 0.6 else ("are", nouns)
        question, end = r.choice(((f"What {be} the {_list(r, chosen, False)} of {ask}{text}", "?"), (f"Find the {_list(r, chosen, False)} of {ask}{text}", "."), (f"Tell me the {_list(r, chosen, False)} for {ask}{text}", ".")))
    elif text and len(chosen) == 1 and not distinct:
        question, end = f"Which {r.choice((one, nouns))}{r.choice(('', ' are there'))}{text}? {r.choice(('Give me their', 'Give the', 'Show the', 'List the'))} {_list(r, chosen)}", "."
    else:
        question = f"{start} {_of(r, table, text)}"
    order, order_goal = "", ""
    if not distinct and r.random() < 0.22:
        said, order, order_goal = _order(r, table)
        question = question + said
    names = ", ".join(c.name for c in chosen)
    said = ("distinct " if distinct else "") + _joined([c.name for c in chosen])
    level = "medium" if order or where.count(" AND ") else "easy"
    return Question(_fill(r, question, end), f"SELECT {'DISTINCT ' if distinct else ''}{names} FROM {table.name}{where}{order}", f"Get {said} from {table.name}{goal}{order_goal}.", [table], level)


def count(r: Random, table: Table) -> Question:
    """Counts rows, or different values."""
    nouns, one = plural(table.words), table.words
    texts = [c for c in table.columns if c.kind in ("text", "ref") and c.words]
    if texts and r.random() < 0.22:
        column = r.choice(texts)
        text, where, goal = conditions(r, table, 0.25)
        word, many = r.choice(("different", "distinct", "unique", "different")), plural(column.words)
        forms = [(f"How many {word} {many} are there{text and f' for {nouns}{text}'}", "?"), (f"How many {word} {many} do the {nouns}{text} have", "?"), (f"Count the number of {word} {many} of {nouns}{text}", "."),
                 (f"Find the number of {word} {many} for {nouns}{text}", "."), (f"What is the number of {word} {many} among the {nouns}{text}", "?"), (f"How many {word} {many} of {nouns} are there{text}", "?"),
                 (f"How many {many} are there for {nouns}{text}? Count each only once", "."), (f"From how many {word} {many} are the {nouns}{text}", "?")]  # fmt: skip
        return Question(_fill(r, *r.choice(forms)), f"SELECT COUNT(DISTINCT {column.name}) FROM {table.name}{where}", f"Count distinct {column.name} of {table.name}{goal}.", [table])
    text, where, goal = conditions(r, table, 0.65)
    forms = [(f"How many {nouns}{text} are there", "?"), (f"How many {nouns} are there{text}", "?"), (f"Count the number of {nouns}{text}", "."), (f"What is the number of {nouns}{text}", "?"),
             (f"Find the number of {nouns}{text}", "."), (f"How many {nouns} do we have{text}", "?"), (f"What is the total number of {nouns}{text}", "?"), (f"Count the {nouns}{text}", "."), (f"Return the number of {nouns}{text}", "."),
             (f"Show the number of {nouns}{text}", "."), (f"How many {nouns}{text} exist", "?"), (f"Tell me how many {nouns}{text} there are", "."), (f"Give the count of {nouns}{text}", "."), (f"What is the count of {nouns}{text}", "?"),
             (f"How many {one} records are there{text}", "?"), (f"Show the total number of {nouns}{text}", "."), (f"How many {nouns} in total{text}", "?"), (f"Find out how many {nouns} there are{text}", "."),
             (f"Show how many {nouns} we have{text}", "."), (f"How many {nouns} are listed{text}", "?")]  # fmt: skip
    if text and r.random() < 0.4:
        verb = text.strip().split()
        if verb[0] == "with":
            forms = [(f"How many {nouns} have {text.strip().removeprefix('with ').removeprefix('the ')}", "?")]
        elif verb[0] in ("that", "who", "which") and len(verb) > 1 and verb[1] in ("have", "are"):
            forms = [(f"How many {nouns} {' '.join(verb[1:])}", "?")]
        elif verb[0] in ("from", "in", "older", "younger", "located", "named", "before", "after"):
            forms = [(f"How many {nouns} are {text.strip()}", "?"), (f"How many {nouns} {text.strip()} are there", "?")]
    return Question(_fill(r, *r.choice(forms)), f"SELECT COUNT(*) FROM {table.name}{where}", f"Count the rows of {table.name}{goal}.", [table])


def aggregate(r: Random, table: Table) -> Question | None:
    """Computes one to three aggregates, of one column or of two."""
    numbers = table.of_kind("number")
    if not numbers:
        return None
    text, where, goal = conditions(r, table, 0.4)
    nouns = plural(table.words)
    if len(numbers) > 1 and r.random() < 0.2:
        first, second = r.sample(numbers, 2)
        one, two = r.choice(sorted(AGGREGATES)), r.choice(sorted(AGGREGATES))
        items = [(one, first), (two, second)]
        what = f"{r.choice(MOST[one])} {first.words} and {r.choice(('', 'the '))}{r.choice(MOST[two])} {second.words}"
    else:
        column = r.choice(numbers)
        kinds = r.sample(sorted(AGGREGATES), r.choice((1, 1, 1, 1, 2, 2, 3)))
        items = [(kind, column) for kind in kinds]
        spoken = [r.choice(MOST[kind]) for kind in kinds]
        what = f"{_joined(spoken)} {column.words}"
        if len(kinds) == 2 and r.random() < 0.2:
            what = f"{spoken[0]} {column.words} and the {spoken[1]} {column.words}"
        elif r.random() < 0.1:
            what = f"{_joined(spoken)} of the {column.words}"
    start, end = _ask(r, what, len(items) > 1)
    question = r.choice((f"{start} {_of(r, table, text)}".replace(" of each ", " of all ").replace(" for each ", " for all ").replace(" of every ", " of the "), f"{start} of {nouns}{text}", f"{start} across all {nouns}{text}", f"{start} for {nouns}{text}",
                         f"{start} over all {nouns}{text}"))  # fmt: skip
    if not text and r.random() < 0.1:
        question = f"Across all {nouns}, {start[0].lower()}{start[1:]}"
    if len(items) == 1 and items[0][0] == "average" and r.random() < 0.12:
        question, end = f"What is the {items[0][1].words} of {nouns}{text} on average", "?"
    if len(items) == 1 and items[0][0] == "sum" and items[0][1].words.startswith("number of ") and r.random() < 0.4:
        thing = items[0][1].words.removeprefix("number of ")
        question, end = r.choice(((f"How many {thing} do all {nouns}{text} have in total", "?"), (f"What is the total number of {thing} of {nouns}{text}", "?"), (f"Find the total number of {thing} of {nouns}{text}", ".")))
    sql = ", ".join(f"{AGGREGATES[kind]}({column.name})" for kind, column in items)
    said = _joined([f"{kind} of {column.name}" for kind, column in items])
    return Question(_fill(r, question, end), f"SELECT {sql} FROM {table.name}{where}", f"Get {said} from {table.name}{goal}.", [table])


def _top(r: Random, table: Table, column: Column, limit: int) -> tuple[str, bool]:
    """Returns words for the first rows in an order, and whether it is descending."""
    down = r.random() < 0.6
    pair, one, nouns = extremes(column), table.words, plural(table.words)
    number = {2: "two", 3: "three", 4: "four", 5: "five", 8: "eight", 10: "ten"}.get(limit, "") if r.random() < 0.5 else str(limit)
    noun = one if limit == 1 else nouns
    if pair and r.random() < 0.6:
        adjective = pair[0 if down else 1]
        return (f"{adjective} {noun}" if limit == 1 else r.choice((f"{number} {adjective} {noun}", f"top {number} {adjective} {noun}"))), down
    if column.kind == "date":
        word = r.choice(("latest", "most recent")) if down else r.choice(("earliest", "first", "oldest"))
    elif column.words.startswith("number of ") and r.random() < 0.6:
        thing = column.words.removeprefix("number of ")
        tail = f"with the {r.choice(('most', 'largest number of', 'greatest number of', 'highest number of') if down else ('fewest', 'smallest number of', 'least', 'lowest number of'))} {thing}"
        return (f"{noun} {tail}" if limit == 1 else f"{r.choice(('top ', ''))}{number} {noun} {tail}"), down
    else:
        word = r.choice(("highest", "largest", "greatest", "maximum", "most", "top", "biggest")) if down else r.choice(("lowest", "smallest", "minimum", "least"))
    tail = r.choice((f"with the {word} {column.words}", f"with the {word} {column.words}", f"that has the {word} {column.words}", f"having the {word} {column.words}"))
    if limit > 1:
        return f"{r.choice(('top ', '') if down else ('',))}{number} {noun} {tail.replace('that has', 'that have')}", down
    return f"{noun} {tail}", down


def superlative(r: Random, table: Table) -> Question | None:
    """Selects columns of the first rows in an order."""
    ordered = [c for c in table.columns if c.kind == "number" or (c.kind == "date" and r.random() < 0.5)]
    if not ordered:
        return None
    column = r.choice(ordered)
    rest = [c for c in table.columns if c is not column and (c.kind in ("text", "number", "date") or (c.kind == "key" and r.random() < 0.4))]
    if not rest:
        return None
    chosen = _shows(r, rest, r.choice((1, 1, 1, 1, 2, 2, 3)))
    limit = 1 if r.random() < 0.75 else r.choice((2, 3, 3, 4, 5, 8, 10))
    noun, down = _top(r, table, column, limit)
    text, where, goal = conditions(r, table, 0.12)
    many = limit > 1 and r.random() < 0.7
    start, end = _ask(r, _list(r, chosen, many), many or len(chosen) > 1)
    question = f"{start} {r.choice(('of', 'of', 'for'))} the {noun}{text}"
    chance = r.random()
    if limit == 1 and chance < 0.15:
        word = noun.split(" ", len(table.words.split()))[-1] if noun.startswith(table.words) else ""
        if word.startswith("with the "):
            question, end = f"Which {table.words} has the {word.removeprefix('with the ')}{text}? {r.choice(('Give me the', 'Show the', 'List the', 'Return the'))} {_list(r, chosen, False)}", "."
        elif not noun.startswith(table.words):
            question, end = f"Which {table.words} is the {noun.rsplit(' ' + table.words, 1)[0]}{text}? {r.choice(('Give me the', 'Show the', 'List the', 'Return the'))} {_list(r, chosen, False)}", "."
    elif limit == 1 and chance < 0.22 and len(chosen) == 1 and chosen[0].source == "name" and is_people(table):
        question, end = f"Who is the {noun}{text}", "?"
    names = ", ".join(c.name for c in chosen)
    sql = f"SELECT {names} FROM {table.name}{where} ORDER BY {column.name} {'DESC' if down else 'ASC'} LIMIT {limit}"
    said = _joined([c.name for c in chosen])
    return Question(_fill(r, question, end), sql, f"Get {said} from {table.name}{goal}, {'descending' if down else 'ascending'} by {column.name}, first {limit}.", [table], "medium")


def grouped(r: Random, table: Table) -> Question | None:
    """Groups rows: counts, aggregates, orders by count, the most common values, and those with enough rows."""
    texts, numbers = table.of_kind("text"), table.of_kind("number")
    groups = texts + [c for c in numbers if c.source == "year"] + [c for c in table.of_kind("ref") if c.words and r.random() < 0.5]
    if not groups:
        return None
    column = r.choices(groups, [1 if c.source in ("name", "title", "first", "digits", "mail") else 5 for c in groups])[0]
    numbers = [c for c in numbers if c is not column]
    name, words, nouns, one, many = column.name, column.words, plural(table.words), table.words, plural(column.words)
    chance = r.random()
    text, where, goal = conditions(r, table, 0.12)
    if chance < 0.36:
        order, order_text, order_goal = "", "", ""
        if r.random() < 0.18:
            down = r.random() < 0.6
            order_text = r.choice((", ordered by the number of {n} in {d} order", " in {d} order of the number of {n}", ", sorted by count {d}")).format(n=nouns, d="descending" if down else "ascending")
            order, order_goal = f" ORDER BY COUNT(*) {'DESC' if down else 'ASC'}", f", {'descending' if down else 'ascending'} by count"
        flipped = r.random() < 0.25
        forms = [f"How many {nouns}{text} are there for each {words}{order_text}?", f"What is the number of {nouns}{text} for each {words}{order_text}?", f"Count the number of {nouns}{text} in each {words}{order_text}.",
                 f"Find the number of {nouns}{text} for each {words}{order_text}.", f"How many {nouns}{text} does each {words} have{order_text}?", f"For each {words}, how many {nouns}{text} are there{order_text}?",
                 f"How many {nouns}{text} are there in each {words}{order_text}?", f"For each {words}, show the number of {nouns}{text}{order_text}.", f"Show the number of {nouns}{text} by {words}{order_text}.", f"How many {nouns}{text} are there of each {words}{order_text}?"]  # fmt: skip
        if flipped:
            forms = [f"{r.choice(('Show', 'List', 'Find', 'Return', 'Give'))} the number of {nouns}{text} and the {words} for each {words}{order_text}.", f"Show how many {nouns}{text} there are for each {words}, with the count first{order_text}."]
            shown, said = f"COUNT(*), {name}", f"the count of rows and {name}"
        else:
            forms += [f"{r.choice(('Show', 'List', 'Find', 'Return', 'Give'))} {r.choice(('each', 'all', 'the', 'different'))} {words} and the {r.choice(('', 'corresponding '))}number of {nouns}{text}{order_text}.",
                      f"{r.choice(('Show', 'List', 'What are'))} {r.choice(('the different', 'all', 'the'))} {many} and the number of {nouns}{text} {r.choice(('in', 'for', 'of', 'with'))} each{order_text}.",
                      f"What are the {many} of {nouns}{text} and how many {nouns} are there for each{order_text}?", f"Show the {words} and the total number of {nouns}{text} for each {words}{order_text}."] * 2  # fmt: skip
            shown, said = f"{name}, COUNT(*)", f"{name} and the count of rows"
        return Question(_fill(r, *_split(r.choice(forms))), f"SELECT {shown} FROM {table.name}{where} GROUP BY {name}{order}", f"Get {said} from {table.name}{goal}, grouped by {name}{order_goal}.", [table], "medium")
    if chance < 0.58 and numbers:
        number = r.choice(numbers)
        kinds = r.sample(sorted(AGGREGATES), 1 if r.random() < 0.75 else 2)
        spoken = f"{_joined([r.choice(MOST[k]) for k in kinds])} {number.words}"
        be = "is" if len(kinds) == 1 else "are"
        counted = r.random() < 0.08
        if counted:
            spoken = f"number of {nouns} and the {spoken}"
        forms = [f"What {be} the {spoken} of {nouns}{text} for each {words}?", f"Find the {spoken} for each {words} of {nouns}{text}.", f"For each {words}, what {be} the {spoken} of {nouns}{text}?", f"Show the {words} and the {spoken} of {nouns}{text} for each {words}.",
                 f"What {be} the {spoken} of the {nouns}{text} in each {words}?", f"Return the {spoken} of {nouns}{text} by {words}.", f"List the {many} of {nouns}{text} and the {spoken} for each.", f"For each {words}, return the {words} and the {spoken} of {nouns}{text}.",
                 f"How much is the {spoken} of {nouns}{text} for each {words}?"]  # fmt: skip
        sql = ", ".join(f"{AGGREGATES[k]}({number.name})" for k in kinds)
        said = _joined([name, *(["the count of rows"] if counted else []), *[f"{k} of {number.name}" for k in kinds]])
        return Question(_fill(r, *_split(r.choice(forms))), f"SELECT {name}, {'COUNT(*), ' if counted else ''}{sql} FROM {table.name}{where} GROUP BY {name}", f"Get {said} from {table.name}{goal}, grouped by {name}.", [table], "medium")
    if chance < 0.8:
        down, limit = r.random() < 0.85, 1 if r.random() < 0.88 else r.choice((2, 3, 5))
        best = r.choice(("most", "largest number of", "greatest number of", "highest number of")) if down else r.choice(("fewest", "least", "smallest number of"))
        common = "most common" if down else "least common"
        counted = r.random() < 0.15
        extra = f" and the number of {nouns}" if counted else ""
        lead = words if limit == 1 else f"{limit} {many}"
        forms = [f"Which {lead} {'has' if limit == 1 else 'have'} the {best} {nouns}{text}?", f"What is the {common} {lead} of {nouns}{text}?", f"Find the {lead} with the {best} {nouns}{text}.", f"What is the {lead} with the {best} {nouns}{text}?",
                 f"Show the {common} {lead} of {nouns}{text}.", f"Which {lead} is the {common} among {nouns}{text}?", f"Return the {common} {lead} across all {nouns}{text}.", f"Give the {lead} that the {best} {nouns}{text} have.", f"What is the {words} shared by the {best} {nouns}{text}?" if limit == 1 else f"List the {lead} with the {best} {nouns}{text}."]  # fmt: skip
        if counted:
            forms = [f"Find the {lead}{extra} for the {words} with the {best} {nouns}{text}.", f"What is the {lead} with the {best} {nouns}{text}, and how many {nouns} does it have?"]
        shown, said = (f"{name}, COUNT(*)", f"{name} and the count of rows") if counted else (name, name)
        return Question(_fill(r, *_split(r.choice(forms))), f"SELECT {shown} FROM {table.name}{where} GROUP BY {name} ORDER BY COUNT(*) {'DESC' if down else 'ASC'} LIMIT {limit}",
                        f"Get {said} from {table.name}{goal}, grouped by {name}, {'descending' if down else 'ascending'} by count, first {limit}.", [table], "hard")  # fmt: skip
    least = r.choice((1, 1, 2, 2, 3, 4, 5))
    word, sign = r.choice((("more than", ">"), ("at least", ">="), ("more than", ">"), ("at least", ">="), ("fewer than", "<"), ("less than", "<"), ("exactly", "=")))
    shown_least = {1: "one", 2: "two", 3: "three"}.get(least, str(least)) if r.random() < 0.5 else str(least)
    thing = nouns if least > 1 or r.random() < 0.5 else one
    forms = [f"Which {many} have {word} {shown_least} {thing}?", f"Find the {many} with {word} {shown_least} {thing}.", f"List the {words} that have {word} {shown_least} {thing}.", f"What are the {many} with {word} {shown_least} {thing}?",
             f"Show the {many} which have {word} {shown_least} {thing}.", f"What are the {many} of {nouns} that are shared by {word} {shown_least} {thing}?", f"Show the {many} shared by {word} {shown_least} {thing}.", f"Give the {words} that {word} {shown_least} {thing} have."]  # fmt: skip
    return Question(_fill(r, *_split(r.choice(forms))), f"SELECT {name} FROM {table.name} GROUP BY {name} HAVING COUNT(*) {sign} {least}", f"Get {name} from {table.name}, grouped by {name} with count {sign} {least}.", [table], "medium")


def _split(text: str) -> tuple[str, str]:
    return text[:-1], text[-1]


def compared(r: Random, table: Table) -> Question | None:
    """Compares a column with its average, its largest value, or that of a row."""
    numbers = table.of_kind("number")
    if not numbers or not table.of_kind("text"):
        return None
    column, chosen, nouns = r.choice(numbers), _columns(r, table)[:2], plural(table.words)
    kind = r.choice(("average", "average", "average", "maximum", "minimum"))
    what = _list(r, chosen)
    start, end = _ask(r, what)
    counted = r.random() < 0.2
    sign = r.choice("<>>") if kind == "average" else "="
    if kind == "average":
        word = r.choice(("above", "greater than", "more than", "higher than", "larger than") if sign == ">" else ("below", "less than", "lower than", "smaller than"))
        tail = r.choice((f"whose {column.words} is {word} the average", f"with {column.words} {word} the average", f"with {'above' if sign == '>' else 'below'} average {column.words}", f"whose {column.words} is {word} the average {column.words}"))
    else:
        tail = f"whose {column.words} is the {r.choice(MOST[kind])}" if r.random() < 0.5 else f"with the {r.choice(MOST[kind])} {column.words} of all"
    question = f"How many {nouns} are there {tail}" if counted else f"{start} of {r.choice(('', 'the ', 'all '))}{nouns} {tail}"
    shown = "COUNT(*)" if counted else ", ".join(c.name for c in chosen)
    inner = f"(SELECT {AGGREGATES[kind]}({column.name}) FROM {table.name})"
    goal = f"{'Count the rows of' if counted else 'Get ' + _joined([c.name for c in chosen]) + ' from'} {table.name} where {column.name} {sign} its {kind}."
    return Question(_fill(r, question, "?" if counted else end), f"SELECT {shown} FROM {table.name} WHERE {column.name} {sign} {inner}", goal, [table], "hard")


def sets(r: Random, table: Table) -> Question | None:
    """Values that rows of both conditions have, or rows of one and not of the other."""
    texts = table.of_kind("text") + [c for c in table.of_kind("ref") if c.words and r.random() < 0.3]
    if not texts:
        return None
    column, one, two = r.choice(texts), condition(r, table), condition(r, table)
    if not one or not two or column.name in (one.sql.split()[0], two.sql.split()[0]) or one.sql == two.sql:
        return None
    name, words, nouns = column.name, column.words, plural(table.words)
    if r.random() < 0.6:
        start, end = _ask(r, plural(words))
        question = r.choice((f"{start} that have both {nouns} {one.text} and {nouns} {two.text}", f"Which {plural(words)} have both {nouns} {one.text} and {nouns} {two.text}", f"{start} shared by {nouns} {one.text} and {nouns} {two.text}",
                             f"{start} of both {nouns} {one.text} and {nouns} {two.text}"))  # fmt: skip
        end = "?" if question.startswith(("Which", "What", "Can")) else "."
        return Question(_fill(r, question, end), f"SELECT {name} FROM {table.name} WHERE {one.sql} INTERSECT SELECT {name} FROM {table.name} WHERE {two.sql}",
                        f"Get {name} from {table.name} where {one.goal}, shared with those where {two.goal}.", [table], "hard")  # fmt: skip
    start, end = _ask(r, plural(words))
    question = r.choice((f"{start} that do not have any {table.words} {one.text}", f"Which {plural(words)} have no {nouns} {one.text}", f"{start} without {nouns} {one.text}", f"Find the {plural(words)} that no {table.words} {one.text} has"))
    end = "?" if question.startswith(("Which", "What", "Can")) else "."
    return Question(_fill(r, question, end), f"SELECT {name} FROM {table.name} EXCEPT SELECT {name} FROM {table.name} WHERE {one.sql}", f"Get {name} from {table.name} except those where {one.goal}.", [table], "hard")


MAKERS: list[tuple[Callable[[Random, Table], Question | None], int]] = [
    (select, 32), (count, 22), (aggregate, 13), (superlative, 12), (grouped, 15), (compared, 3), (sets, 4),
]  # fmt: skip


def draw(r: Random, database: Database) -> Question:
    """Returns a question about a database."""
    from . import joining

    asked = [table for table in database.tables if table.words]
    while True:
        chance = r.random()
        if chance < 0.22:
            question = joining.draw(r, database)
        elif chance < 0.36:
            maker = r.choices([m for m, _ in questions.MAKERS], [w for _, w in questions.MAKERS])[0]
            question = maker(r, r.choice(asked))
        else:
            maker = r.choices([m for m, _ in MAKERS], [w for _, w in MAKERS])[0]
            question = maker(r, r.choice(asked))
        if question is not None and ";" not in question.text and ";" not in question.sql and len(question.text) < 220:
            return question
