"""Sequences of words that two texts share. Numbers are masked."""

from __future__ import annotations

import re


def words(text: str) -> list[str]:
    """Returns the words of a text in lower case, with `0` for every number."""
    return ["0" if word.isdigit() else word for word in re.findall(r"[^\W\d_]+|\d+", text.lower())]


def sequences(text: str, length: int) -> set[tuple[str, ...]]:
    """Returns all sequences of this many words."""
    found = words(text)
    return {tuple(found[i : i + length]) for i in range(len(found) - length + 1)}
