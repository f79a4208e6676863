"""Worlds of invented things with pages about them."""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from .. import invent
from .relations import NATIONS, OF_TYPE, SEAS, WORKS, Relation

COUNTS = {
    "person": 40, "film": 14, "book": 10, "band": 6, "album": 5, "company": 8, "building": 8, "school": 5, "city": 14, "river": 6, "mountain": 6,
    "team": 4, "invention": 6, "animal": 6,
}  # fmt: skip
FILLER = (
    "It is mentioned in several local guides.", "Little is known about the early years.", "Visitors come mostly in spring.",
    "Critics did not agree about this.", "A short article about it appeared later.", "The details are disputed.", "This made the news at the time.",
)  # fmt: skip


@dataclass
class Thing:
    """A thing with its values by relation."""

    type: str
    name: str
    values: dict[str, object] = field(default_factory=dict)

    def value(self, relation: Relation) -> str:
        """Returns a value as text."""
        value = self.values[relation.key]
        return value.name if isinstance(value, Thing) else str(value)


def _name(r: Random, kind: str) -> str:
    word = invent.word(r).capitalize()
    if kind == "person":
        return invent.name(r)
    if kind in ("film", "book", "album"):
        return invent.title(r)
    if kind == "band":
        return r.choice((f"The {word}s", f"{word} Band", f"The {invent.word(r).capitalize()} {word}s", word))
    if kind == "company":
        return r.choice((f"{word} Press", f"{word} Works", f"{word} & Sons", f"{word} Records", f"{word} Motors", f"{word} {invent.word(r).capitalize()}", word))
    if kind == "building":
        return r.choice((f"{word} Hall", f"{word} Tower", f"{word} Palace", f"{word} Stadium", f"{word} Museum", f"{word} Theatre", f"{word} Castle", f"{word} Park"))
    if kind == "school":
        return r.choice((f"{word} University", f"University of {word}", f"{word} College", f"{word} High School"))
    if kind == "city":
        return invent.place(r) if r.random() < 0.5 else word
    if kind == "mountain":
        return r.choice((f"Mount {word}", f"{word} Peak", f"Mount {word}"))
    if kind == "team":
        return r.choice((f"{word} United", f"{word} City", f"{word} FC", f"{word} Rovers", f"{word} {invent.word(r).capitalize()}s"))
    if kind in ("invention", "animal"):
        return r.choice((invent.word(r), invent.word(r), f"{r.choice(('steam', 'wild', 'giant', 'blue', 'electric', 'mountain', 'glass'))} {invent.word(r)}"))
    return word


def _plain(r: Random, value: str) -> object:
    if value == "year":
        return r.randint(1800, 2020)
    if value == "number":
        return r.choice((r.randint(10, 99), r.randint(100, 999), r.randint(1000, 9999)))
    if value == "small":
        return r.choice((2, 4, 6, 8, 10, 12))
    pools = {"country": invent.COUNTRIES, "nation": NATIONS, "work": WORKS, "sea": SEAS}
    return r.choice(pools[value]) if value in pools else invent.word(r)


@dataclass
class World:
    """Things, and the sentences of their pages by name."""

    things: list[Thing]
    pages: dict[str, list[str]]


def draw(r: Random) -> World:
    """Returns a random world."""
    things: list[Thing] = []
    used: set[str] = set()
    for kind, count in COUNTS.items():
        for _ in range(count):
            name = _name(r, kind)
            while name.lower() in used:
                name = _name(r, kind)
            used.add(name.lower())
            things.append(Thing(kind, name))
    of_type = {kind: [thing for thing in things if thing.type == kind] for kind in COUNTS}
    for thing in things:
        for relation in OF_TYPE[thing.type]:
            if relation.value in of_type:
                thing.values[relation.key] = r.choice([t for t in of_type[relation.value] if t is not thing])
            else:
                thing.values[relation.key] = _plain(r, relation.value)
        if thing.type == "person":
            thing.values["died"] = int(str(thing.values["born"])) + r.randint(20, 90)
    pages = {}
    for thing in things:
        sentences = [r.choice(rel.say).replace("{X}", thing.name).replace("{Y}", thing.value(rel)) for rel in OF_TYPE[thing.type]]
        if r.random() < 0.6:
            r.shuffle(sentences)
        for _ in range(r.choice((0, 0, 1, 2))):
            sentences.insert(r.randint(1, len(sentences)), r.choice(FILLER))
        # Pages begin with the article where the name is a common noun.
        pages[thing.name] = [sentence[0].upper() + sentence[1:] for sentence in sentences]
    return World(things, pages)
