"""Random actors, objects and numbers for a story."""

from __future__ import annotations

from random import Random

from . import words
from .story import Teller


def size(r: Random) -> int:
    """Returns the upper bound of the numbers in a story."""
    return r.choice((10, 15, 20, 30, 50, 50, 100, 100, 100, 300, 1000))


def number(r: Random, low: int, high: int) -> int:
    """Returns a number for a story."""
    return r.randint(low, max(low, high))


def noun(r: Random, pool: list[str] | None = None) -> str:
    """Returns a plural noun, sometimes an invented one."""
    if r.random() < 0.1:
        return words.invented_noun(r)
    return r.choice(pool or words.THINGS)


def kinds(r: Random) -> tuple[str, str, str]:
    """Returns two kinds of a thing, and the thing: `red marbles`, `blue marbles`, `marbles`."""
    thing = noun(r)
    pool = r.choice((words.COLOURS, words.COLOURS, words.QUALITIES))
    if thing in words.FOOD and r.random() < 0.6:
        pool = words.FLAVOURS
    first, second = r.sample(pool, 2)
    return f"{first} {thing}", f"{second} {thing}", thing


def two_things(r: Random) -> tuple[str, str]:
    """Returns two different plural nouns."""
    pool = r.choice((words.TOYS, words.FOOD, words.STATIONERY, words.LIVING, words.THINGS))
    first, second = r.sample(pool, 2)
    return (first if r.random() > 0.07 else words.invented_noun(r)), second


def person(r: Random) -> tuple[str, str]:
    """Returns a first name and `he` or `she`."""
    if r.random() < 0.06:
        return words.invented_name(r), r.choice(("he", "she"))
    if r.random() < 0.5:
        return r.choice(words.MEN), "he"
    return r.choice(words.WOMEN), "she"


def teller(r: Random, **slots: object) -> Teller:
    """Returns a teller with slots for three actors, pronouns, places, days and months."""
    name, he = person(r)
    his, him = ("his", "him") if he == "he" else ("her", "her")
    other, _ = person(r)
    third, _ = person(r)
    while other == name:
        other, _ = person(r)
    while third in (name, other):
        third, _ = person(r)
    if r.random() < 0.25:
        relatives = r.sample(words.RELATIVES, 2)
        other = f"{his} {relatives[0]}" + (f" {other}" if r.random() < 0.5 else "")
    first, second, last = r.sample(words.DAYS, 3)
    month, later = r.sample(words.MONTHS, 2)
    place, elsewhere = r.sample(words.PLACES, 2)
    told = Teller(r, A=name, he=he, his=his, him=him, B=other, C=third, P=place, Q=elsewhere, M=month, N=later)
    told.set(D1=first, D2=second, D3=last)
    told.set(**slots)
    return told
