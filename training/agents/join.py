"""Joins files of conversations: each conversation once, without long ones, held-out questions and those of test items."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path
from random import Random

from contamination import texts
from lumos_agents.conversations import Conversation, read, write
from lumos_tiny.overlap import words
from tokenizers import Tokenizer


def left_out(files: list[str]) -> set[tuple[str, ...]]:
    """Reads texts from `FILE:FIELD`, as words with masked numbers."""
    found = set()
    for file in files:
        path, _, field = file.rpartition(":")
        found |= {tuple(words(text)) for text in texts(Path(path), field)}
    return found


def joined(paths: list[Path], without: set[tuple[str, ...]], fits: Tokenizer, longest: int, unanswered: float, r: Random) -> Iterator[Conversation]:
    """Yields the conversations of the files in the order of the files, and prints how many were left out."""
    seen: set[tuple] = set()
    counts = {"repeated": 0, "equal to a test item": 0, "long": 0, "without an answer": 0}
    for path in paths:
        for conversation in read(path):
            key = (conversation.role, *conversation.turns)
            if key in seen:
                counts["repeated"] += 1
            elif tuple(words(conversation.task)) in without:
                counts["equal to a test item"] += 1
            elif conversation.role == "qa" and conversation.turns[-1][1] == "No answer" and r.random() >= unanswered:
                counts["without an answer"] += 1
            elif len(fits.encode(conversation.text, add_special_tokens=False).ids) > longest:
                counts["long"] += 1
            else:
                seen.add(key)
                yield conversation
    print("left out: " + ", ".join(f"{count} {name}" for name, count in counts.items()))


def main() -> None:
    """Writes one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, nargs="+", required=True, help="files of conversations")
    parser.add_argument("--without", nargs="+", default=[], metavar="FILE:FIELD", help="leave out tasks equal to one of these, with numbers masked")
    parser.add_argument("--tokenizer", type=Path, required=True, help="tokenizer.json that counts tokens")
    parser.add_argument("--longest", type=int, default=500, help="leave out longer conversations, in tokens")
    parser.add_argument("--unanswered", type=float, default=1.0, help="share to keep of the QA tool's conversations without an answer")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    args = parser.parse_args()
    tokenizer = Tokenizer.from_file(str(args.tokenizer))
    found = joined(args.data, left_out(args.without), tokenizer, args.longest, args.unanswered, Random(args.seed))
    print(f"{write(found, args.out)} conversations")


if __name__ == "__main__":
    main()
