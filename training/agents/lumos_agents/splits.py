"""Assigns tasks to train, dev and test by a hash of their texts."""

from __future__ import annotations

from hashlib import sha256


def split_of(text: str) -> str:
    """Returns `test` for 10 % of all texts, `dev` for 5 %, and `train` for the others."""
    number = int.from_bytes(sha256(text.encode()).digest()[:4], "big") % 100
    return "test" if number < 10 else "dev" if number < 15 else "train"
