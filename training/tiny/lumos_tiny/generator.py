"""Seeded problem streams, split into train, dev and test."""

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
    """Returns the split of a problem.

    It depends only on the calculation and on the numbers in the text. The calculation of a test problem
    with the same numbers in the same order therefore never occurs in training, independent of the words.
    """
    key = "; ".join(problem.formulas) + " | " + " ".join(numbers_in(problem.question))
    bucket = crc32(key.encode()) % 32
    return {0: "test", 1: "dev"}.get(bucket, "train")


def draw(r: Random, long_share: float = 1 - SHORT_SHARE) -> Problem:
    """Returns a random problem of any split."""
    while True:
        worlds, weights = _weighted(_LONG if r.random() < long_share else _SHORT)
        make = r.choices(worlds, weights)[0]
        problem = assemble(r, make.__name__, make(r))
        if problem is not None:
            return problem


def stream(seed: int | str, split: str) -> Iterator[Problem]:
    """Yields an endless stream of problems of one split."""
    r = Random(f"{split}:{seed}")
    while True:
        problem = draw(r)
        if split_of(problem) == split:
            yield problem
