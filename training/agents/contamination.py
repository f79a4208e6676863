"""Lists test items that share a sequence of words with the training tasks. Numbers are masked."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterator
from pathlib import Path

import lumos_agents  # noqa: F401  (makes lumos_tiny importable)
from lumos_tiny.overlap import sequences, words


def texts(path: Path, field: str) -> Iterator[str]:
    """Yields a field of the records of a JSON or JSON Lines file; records may be texts themselves. `a.b` is a field of a field."""
    content = path.read_text()
    records = json.loads(content) if content.lstrip().startswith("[") else [json.loads(line) for line in content.splitlines()]
    for record in records:
        value = record
        for name in [] if isinstance(record, str) else field.split("."):
            value = value[name]
        yield value


def main() -> None:
    """Prints counts and the overlapping items."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--train", type=Path, nargs="+", required=True, help="files of conversations (field `task`)")
    parser.add_argument("--test", type=Path, required=True, help="JSON or JSON Lines")
    parser.add_argument("--field", default="task", help="field of the test file with the text, such as doc.question in samples of a run")
    parser.add_argument("--words", type=int, default=8)
    parser.add_argument("--show", type=int, default=20, help="overlapping items to print")
    parser.add_argument("--drop", default="$^", help="pattern of texts of the benchmark's template, which are removed first")
    parser.add_argument("--write", type=Path, metavar="FILE", help="write the conversations of --train whose tasks equal no test item")
    args = parser.parse_args()
    drop = re.compile(args.drop)
    trained = {drop.sub(" ", text) for path in args.train for text in texts(path, "task")}
    known = {sequence for text in trained for sequence in sequences(text, args.words)}
    masked = {tuple(words(text)) for text in trained}
    tested = list(dict.fromkeys(drop.sub(" ", text) for text in texts(args.test, args.field)))
    equal = [text for text in tested if tuple(words(text)) in masked]
    shared = [(text, sequences(text, args.words) & known) for text in tested]
    shared = [(text, found) for text, found in shared if found]
    print(f"{len(trained)} training tasks, {len(tested)} test items: {len(equal)} equal, {len(shared)} share {args.words} words")
    for text, found in shared[: args.show]:
        print(f"- {text}\n  {' '.join(min(found))}")

    if args.write:
        found = {tuple(words(text)) for text in equal}
        kept = [line for path in args.train for line in path.read_text().splitlines() if tuple(words(drop.sub(" ", json.loads(line)["task"]))) not in found]
        args.write.write_text("".join(f"{line}\n" for line in kept))
        print(f"{len(kept)} conversations written")


if __name__ == "__main__":
    main()
