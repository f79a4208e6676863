"""Converts the good episodes of runs, or annotations that `lumos export` made of them, into conversations to train on."""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

from lumos_agents.conversations import of_annotations, of_run, write
from lumos_agents.texts import domain


def main() -> None:
    """Writes one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--run", type=Path, nargs="+", help="folders of runs")
    source.add_argument("--annotations", type=Path, nargs="+", help="files of `lumos export --to annotations`, with --domain")
    parser.add_argument("--domain", choices=("qa", "sql"), help="domain of the annotations, whose worked examples are added")
    parser.add_argument("--metric", nargs="+", help="with --run: keep episodes with a full score in one of these metrics, such as exact_match")
    parser.add_argument("--least", type=float, default=1.0, help="with --run: keep episodes with at least this score")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    args = parser.parse_args()
    if args.run:
        if not args.metric:
            parser.error("--run requires --metric")
        found = chain.from_iterable(of_run(run, args.metric, args.least) for run in args.run)
    else:
        if not args.domain:
            parser.error("--annotations requires --domain")
        examples = getattr(domain(args.domain), "EXAMPLES", {})
        found = chain.from_iterable(of_annotations(path, examples) for path in args.annotations)
    print(f"{write(found, args.out)} conversations")


if __name__ == "__main__":
    main()
