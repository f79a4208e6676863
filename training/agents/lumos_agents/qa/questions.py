"""Questions about a world, with the subgoals that lead to the answer."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from .relations import OF_TYPE, RELATIONS, Relation
from .world import Thing, World


@dataclass
class Step:
    """A subgoal: its question, the page to look at, its answer, and how a one-time plan asks it before earlier answers are known.

    `unnamed` is the question without the name of its thing. A one-time plan searches for the QA tool's whole result, so a name in its
    question would be found again instead of the answer. `search` are the words that select sentences where the name is not known yet: the
    ranker of words would otherwise prefer sentences with *that* and *person*.
    """

    ask: str
    page: str
    answer: str
    ask_before: str = ""
    follows: bool = False
    unnamed: str = ""
    search: str = ""


@dataclass
class Question:
    """A question with its answer and steps."""

    text: str
    answer: str
    kind: str
    steps: list[Step]


def _usual(thing: Thing, relation: Relation) -> Step:
    """The step in the first form of its question: plans always use this form, so that a planner can learn which."""
    return Step(relation.ask[0].replace("{X}", thing.name), thing.name, thing.value(relation))


def _step(r: Random, thing: Thing, relation: Relation) -> Step:
    return Step(r.choice(relation.ask).replace("{X}", thing.name), thing.name, thing.value(relation))


_COMMON = set(
    "a about an and are as at by can for from had has her his in into is it its left many north not of often on once one only or out several soon spent that the there they "
    "this through to twenty two up was were which who with years after always all became early last long main later people".split()
)


def search_words(relation: Relation) -> str:
    """Returns the words of a relation's sentences without common ones, those of several sentences first, at most eight."""
    said = [dict.fromkeys(re.sub(r"\{[XY]\}|[^\w ]|\d", " ", text).lower().split()) for text in relation.say]
    counts = Counter(word for words in said for word in words if word not in _COMMON)
    return " ".join(word for word, _ in counts.most_common(8))


#: By relations of persons: words of their sentences that their questions do not contain, such as *died* for *Where did Ann Lee die?*
MORE = {
    "died": "died lived until", "deathplace": "died", "birthplace": "born native", "college": "studied graduated degree student", "father": "father child son",
    "spouse": "married wife met", "work": "was a known as worked became",
}  # fmt: skip
_MORE = [
    (re.compile(re.escape(form).replace(r"\{X\}", ".+")), MORE[relation.key]) for relation in RELATIONS if relation.of == "person" and relation.key in MORE for form in relation.ask
]  # fmt: skip


def search_query(ask: str) -> str:
    """Returns what to search the sentences of a page for to answer a question: the question, with more words where it needs them."""
    return next((f"{ask} {more}" for form, more in _MORE if form.fullmatch(ask)), ask)


def one_hop(r: Random, world: World) -> Question:
    """Asks for one value."""
    thing = r.choice(world.things)
    step = _step(r, thing, r.choice(OF_TYPE[thing.type]))
    return Question(step.ask, step.answer, "bridge", [step])


def two_hops(r: Random, world: World) -> Question:
    """Asks for a value of the value of another relation."""
    while True:
        thing = r.choice(world.things)
        first = r.choice(OF_TYPE[thing.type])
        middle = thing.values[first.key]
        if first.phrases and isinstance(middle, Thing):
            break
    phrase = r.choice(first.phrases).replace("{X}", thing.name)
    second = r.choice(OF_TYPE[middle.type])
    ask = r.choice(second.ask)
    asked = ask.replace("the {X}", phrase).replace("a {X}", phrase).replace("{X}", phrase)
    asked = asked[0].upper() + asked[1:]
    _step(r, thing, first)  # keeps the sequence of random numbers, on which the held-out questions depend
    one = _usual(thing, first)
    noun = {"person": "that person", "city": "that city", "river": "that river", "company": "that company", "band": "that band"}.get(middle.type, "it")
    before = ask.replace("the {X}", noun).replace("{X}", noun)
    one.unnamed = re.sub(r"(?:\b(?:the|an?) )?\{X\}", "they" if thing.type == "person" else "it", first.ask[0])
    two = Step(ask.replace("{X}", middle.name), middle.name, middle.value(second), before, True, search=search_words(second))
    return Question(asked, two.answer, "bridge", [one, two])


ORDERS = [
    # relation key, type, question, whether the smaller value is asked for
    ("born", "person", "Who was born first, {A} or {B}?", True), ("born", "person", "Who is older, {A} or {B}?", True),
    ("born", "person", "Who was born later, {A} or {B}?", False), ("born", "person", "Who is younger, {A} or {B}?", False),
    ("born", "person", "Who was born earlier, {A} or {B}?", True), ("died", "person", "Who died first, {A} or {B}?", True),
    ("released", "film", "Which film was released first, {A} or {B}?", True), ("released", "film", "Which film came out earlier, {A} or {B}?", True),
    ("released", "film", "Which film is newer, {A} or {B}?", False), ("published", "book", "Which book was published first, {A} or {B}?", True),
    ("founded", "company", "Which company was founded first, {A} or {B}?", True), ("founded", "company", "Which company is older, {A} or {B}?", True),
    ("formed", "band", "Which band was formed first, {A} or {B}?", True), ("length", "river", "Which river is longer, the {A} or the {B}?", False),
    ("high", "mountain", "Which mountain is higher, {A} or {B}?", False), ("high", "mountain", "Which is taller, {A} or {B}?", False),
    ("people", "city", "Which city has more people, {A} or {B}?", False), ("people", "city", "Which city has the larger population, {A} or {B}?", False),
    ("height", "building", "Which building is taller, {A} or {B}?", False), ("built", "building", "Which was built first, {A} or {B}?", True),
    ("opened", "school", "Which school is older, {A} or {B}?", True), ("invented", "invention", "Which was invented first, the {A} or the {B}?", True),
]  # fmt: skip
SAME = [
    ("nationality", "person", "Are {A} and {B} of the same nationality?"), ("nationality", "person", "Were {A} and {B} of the same nationality?"),
    ("nationality", "person", "Do {A} and {B} have the same nationality?"), ("work", "person", "Do {A} and {B} have the same profession?"),
    ("work", "person", "Did {A} and {B} have the same occupation?"), ("country", "city", "Are {A} and {B} in the same country?"),
    ("country", "city", "Are {A} and {B} both located in the same country?"), ("land", "mountain", "Are {A} and {B} in the same country?"),
    ("mouth", "river", "Do the {A} and the {B} flow into the same sea?"), ("released", "film", "Were {A} and {B} released in the same year?"),
    ("place", "building", "Are {A} and {B} in the same city?"), ("place", "building", "Are {A} and {B} both located in the same city?"), ("seat", "company", "Are {A} and {B} based in the same city?"),
    ("birthplace", "person", "Were {A} and {B} born in the same city?"), ("director", "film", "Were {A} and {B} directed by the same person?"),
]  # fmt: skip
BOTH = [
    ("nationality", "person", "Are both {A} and {B} {V}?"), ("nationality", "person", "Are {A} and {B} both {V}?"), ("work", "person", "Were {A} and {B} both {V}s?"),
    ("work", "person", "Are {A} and {B} both a {V}?"), ("country", "city", "Are both {A} and {B} in {V}?"), ("genre", "film", "Are {A} and {B} both {V} films?"),
]  # fmt: skip
#: yes-or-no questions about an order: first key and type, second key and type, question, whether the first must be smaller
LESS = [
    ("born", "person", "born", "person", "Was {A} born before {B}?", True), ("born", "person", "born", "person", "Is {A} younger than {B}?", False),
    ("born", "person", "born", "person", "Is {A} older than {B}?", True), ("died", "person", "born", "person", "Did {A} die before {B} was born?", True),
    ("born", "person", "died", "person", "Could {A} have met {B}?", True), ("died", "person", "invented", "invention", "Did {A} die before the {B} was invented?", True),
    ("invented", "invention", "died", "person", "Could {B} have used a {A}?", True), ("invented", "invention", "died", "person", "Did {B} live to see the {A}?", True),
    ("weight", "animal", "weight", "animal", "Does a {A} weigh more than a {B}?", False), ("weight", "animal", "weight", "animal", "Is a {A} lighter than a {B}?", True),
    ("weight", "animal", "weight", "animal", "Would a {A} outweigh a {B}?", False), ("legs", "animal", "legs", "animal", "Does a {A} have more legs than a {B}?", False),
    ("legs", "animal", "legs", "animal", "Does a {A} have fewer legs than a {B}?", True), ("high", "mountain", "high", "mountain", "Is {A} higher than {B}?", False),
    ("length", "river", "length", "river", "Is the {A} longer than the {B}?", False), ("people", "city", "people", "city", "Does {A} have more people than {B}?", False),
    ("height", "building", "height", "building", "Is {A} taller than {B}?", False), ("height", "building", "high", "mountain", "Would {A} be taller than {B}?", False),
    ("released", "film", "died", "person", "Could {B} have watched {A}?", True), ("published", "book", "died", "person", "Could {B} have read {A}?", True),
    ("founded", "company", "founded", "company", "Is {A} older than {B}?", True), ("built", "building", "born", "person", "Was {A} built before {B} was born?", True),
    ("formed", "band", "died", "person", "Could {B} have heard {A}?", True),
]  # fmt: skip
IS = [
    ("food", "animal", "Does a {A} eat {V}?"), ("nationality", "person", "Is {A} {V}?"), ("nationality", "person", "Was {A} {V}?"), ("work", "person", "Was {A} a {V}?"),
    ("country", "city", "Is {A} in {V}?"), ("mouth", "river", "Does the {A} flow into the {V}?"), ("home", "animal", "Could you find a {A} in {V}?"),
    ("land", "mountain", "Would you climb {A} in {V}?"),
]  # fmt: skip
KEYS = {(relation.of, relation.key): relation for relation in RELATIONS}


def _two(r: Random, world: World, first: str, second: str) -> tuple[Thing, Thing]:
    while True:
        a, b = (r.choice([t for t in world.things if t.type == kind]) for kind in (first, second))
        if a is not b:
            return a, b


def _pair(r: Random, a: Thing, one: Relation, b: Thing, two: Relation) -> list[Step]:
    r.choice(range(len(one.ask)))  # keeps the sequence of random numbers
    return [_usual(a, one), _usual(b, two)]


def compare(r: Random, world: World) -> Question:
    """Asks which of two things comes first, or whether they agree."""
    chance = r.random()
    if chance < 0.5:
        key, kind, text, smaller = r.choice(ORDERS)
        a, b = _two(r, world, kind, kind)
        while a.values[key] == b.values[key]:
            a, b = _two(r, world, kind, kind)
        relation = KEYS[kind, key]
        answer = a if (int(str(a.values[key])) < int(str(b.values[key]))) == smaller else b
        return Question(text.replace("{A}", a.name).replace("{B}", b.name), answer.name, "comparison", _pair(r, a, relation, b, relation))
    if chance < 0.8:
        key, kind, text = r.choice(SAME)
        relation = KEYS[kind, key]
        wanted = r.random() < 0.5
        for _ in range(300):
            a, b = _two(r, world, kind, kind)
            if (a.value(relation) == b.value(relation)) == wanted:
                break
        answer = "yes" if a.value(relation) == b.value(relation) else "no"
        return Question(text.replace("{A}", a.name).replace("{B}", b.name), answer, "comparison", _pair(r, a, relation, b, relation))
    key, kind, text = r.choice(BOTH)
    relation = KEYS[kind, key]
    value = None
    wanted = r.random() < 0.5
    for _ in range(300):
        a, b = _two(r, world, kind, kind)
        value = r.choice((a, b)).value(relation)
        if (a.value(relation) == b.value(relation)) == wanted:
            break
    answer = "yes" if a.value(relation) == b.value(relation) == value else "no"
    return Question(text.replace("{A}", a.name).replace("{B}", b.name).replace("{V}", str(value)), answer, "comparison", _pair(r, a, relation, b, relation))


def yes_or_no(r: Random, world: World) -> Question:
    """Asks for a yes or no that two values, or one, decide."""
    if r.random() < 0.75:
        key, kind, other_key, other_kind, text, smaller = r.choice(LESS)
        one, two = KEYS[kind, key], KEYS[other_kind, other_key]
        wanted = r.random() < 0.5
        for _ in range(300):
            a, b = _two(r, world, kind, other_kind)
            first, second = (int(t.value(rel)) for t, rel in ((a, one), (b, two)))
            if first != second and ((first < second) == smaller) == wanted:
                break
        answer = "yes" if (first < second) == smaller and first != second else "no"
        return Question(text.replace("{A}", a.name).replace("{B}", b.name), answer, "order", _pair(r, a, one, b, two))
    key, kind, text = r.choice(IS)
    relation = KEYS[kind, key]
    a = r.choice([t for t in world.things if t.type == kind])
    other = r.choice([t for t in world.things if t.type == kind])
    value = (a if r.random() < 0.5 else other).value(relation)
    answer = "yes" if value == a.value(relation) else "no"
    _step(r, a, relation)  # keeps the sequence of random numbers
    return Question(text.replace("{A}", a.name).replace("{V}", value), answer, "fact", [_usual(a, relation)])


#: Clauses about values of plain relations, which make a question longer without changing its plan.
CLAUSES = {
    "born": "who was born in {Y}", "nationality": "a {Y} citizen", "work": "a {Y}", "released": "which was released in {Y}", "genre": "a {Y} film", "published": "which first appeared in {Y}",
    "formed": "which was formed in {Y}", "out": "which came out in {Y}", "founded": "which was founded in {Y}", "product": "known for its {Y} products", "star": "starring {Y}",
    "publisher": "which was published by {Y}", "height": "which is {Y} metres high", "length": "which is {Y} kilometres long", "high": "which is {Y} metres high", "spouse": "who was married to {Y}",
    "college": "who studied at {Y}", "birthplace": "a native of {Y}", "singer": "whose singer is {Y}", "seat": "which is based in {Y}", "invented": "which was invented in {Y}",
}  # fmt: skip


def longer(r: Random, world: World) -> Question:
    """Asks for a value of the value of another relation, with clauses about the first thing. The plan leaves them out."""
    while True:
        question = two_hops(r, world)
        thing = next(thing for thing in world.things if thing.name == question.steps[0].page)
        usable = [rel for rel in OF_TYPE[thing.type] if rel.key in CLAUSES and thing.value(rel) not in (question.steps[0].answer, question.answer)]
        if usable and question.text.count(thing.name) == 1:
            break
    chosen = r.sample(usable, min(len(usable), r.choice((1, 1, 2, 3))))
    said = ", ".join(CLAUSES[rel.key].replace("{Y}", thing.value(rel)) for rel in chosen)
    head, _, rest = question.text.partition(thing.name)
    return Question(f"{head}{thing.name}, {said}{rest if rest.startswith('?') else ',' + rest}", question.answer, question.kind, question.steps)


HOTPOT: list[tuple[Callable[[Random, World], Question], int]] = [(one_hop, 15), (two_hops, 50), (compare, 35)]
#: as `HOTPOT`, with long questions
LONG: list[tuple[Callable[[Random, World], Question], int]] = [(one_hop, 12), (two_hops, 36), (longer, 22), (compare, 30)]
STRATEGY: list[tuple[Callable[[Random, World], Question], int]] = [(yes_or_no, 1)]


def draw(r: Random, world: World, makers: list[tuple[Callable[[Random, World], Question], int]]) -> Question:
    """Returns a question."""
    return r.choices([m for m, _ in makers], [w for _, w in makers])[0](r, world)
