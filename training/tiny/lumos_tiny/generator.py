"""Seeded problem streams, divided into train, dev and test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from random import Random
from zlib import crc32

from . import worlds_change, worlds_group, worlds_long, worlds_more
from .story import Problem, World, assemble, numbers_in

SPLITS = ("train", "dev", "test")
_SHORT = worlds_change.WORLDS + worlds_group.WORLDS + worlds_more.WORLDS
_LONG = worlds_long.WORLDS
SHORT_SHARE = 0.76


def _weighted(entries: tuple) -> tuple[list[Callable[[Random], World]], list[int]]:
    return [world for world, _ in entries], [weight for _, weight in entries]


def split_of(problem: Problem) -> str:
    """Which split a problem belongs to.

    It depends only on the calculation and on the numbers told, so that no calculation of a test
    problem, with the same numbers in the same order, is ever trained on, whatever its words are.
    """
    key = "; ".join(problem.formulas) + " | " + " ".join(numbers_in(problem.question))
    bucket = crc32(key.encode()) % 32
    return {0: "test", 1: "dev"}.get(bucket, "train")


def draw(r: Random, long_share: float = 1 - SHORT_SHARE) -> Problem:
    """One random problem of any split."""
    while True:
        worlds, weights = _weighted(_LONG if r.random() < long_share else _SHORT)
        make = r.choices(worlds, weights)[0]
        problem = assemble(r, make.__name__, make(r))
        if problem is not None:
            return problem


def stream(seed: int, split: str) -> Iterator[Problem]:
    """Endless problems of one split."""
    r = Random(f"{split}:{seed}")
    while True:
        problem = draw(r)
        if split_of(problem) == split:
            yield problem


def is_easy(problem: Problem) -> bool:
    """Short, with two numbers and one operation on them."""
    return len(problem.formulas) == 1 and len(problem.question) < 130 and len(numbers_in(problem.question)) == 2
