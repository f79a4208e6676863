"""Counts test questions that share a sequence of words with training questions, and lists these training questions to leave them out."""

from __future__ import annotations

import argparse
import json
from itertools import islice
from pathlib import Path

from lumos_tiny import asdiv, gsm8k, mawps
from lumos_tiny.generator import stream
from lumos_tiny.overlap import sequences, words


def questions(path: Path) -> list[str]:
    """Returns the questions of a file in the format of GSM8K or SVAMP."""
    content = path.read_text()
    records = json.loads(content) if content.lstrip().startswith("[") else [json.loads(line) for line in content.splitlines()]
    return [r["question"] if "question" in r else f"{r['Body'].strip()} {r['Question'].strip()}" for r in records]


def main() -> None:
    """Prints counts, and writes the list."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--test", type=Path, nargs="+", required=True, help="files in the format of GSM8K or SVAMP")
    parser.add_argument("--gsm8k", type=Path, required=True, help="GSM8K's train.jsonl")
    parser.add_argument("--mawps", type=Path, required=True, help="MAWPS as a CSV file of the SVAMP repository")
    parser.add_argument("--asdiv", type=Path, help="ASDiv.xml")
    parser.add_argument("--generated", type=int, default=20_000, help="number of generated problems")
    parser.add_argument("--words", type=int, default=8)
    parser.add_argument("--leave-out", type=Path, help="JSON file to write: training questions that share words with a test question")
    args = parser.parse_args()
    trained = {
        "GSM8K, train": [problem.question for problem in gsm8k.load(args.gsm8k)],
        "MAWPS": [problem.question for problem in mawps.load(args.mawps)],
        "ASDiv": [problem.question for problem in asdiv.load(args.asdiv)] if args.asdiv else [],
        "generated": [problem.question for problem in islice(stream(1, "train"), args.generated)],
    }
    shared = set()
    for path in args.test:
        tested = questions(path)
        all_tested = {sequence for text in tested for sequence in sequences(text, args.words)}
        for name, texts in trained.items():
            known = {sequence for text in texts for sequence in sequences(text, args.words)}
            masked = {tuple(words(text)) for text in texts}
            found = [text for text in texts if sequences(text, args.words) & all_tested]
            equal = sum(tuple(words(text)) in masked for text in tested)
            some = sum(bool(sequences(text, args.words) & known) for text in tested)
            print(f"{path}: {equal} of {len(tested)} equal to a question of {name}, {some} share {args.words} words with one of {len(found)}")
            if name != "generated":
                shared.update(found)
    if args.leave_out:
        args.leave_out.write_text(json.dumps(sorted(shared), indent=0) + "\n")


if __name__ == "__main__":
    main()
