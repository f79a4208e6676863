"""Converts the good episodes of runs into conversations to train on."""

from __future__ import annotations

import argparse
from itertools import chain
from pathlib import Path

from lumos_agents.conversations import of_run, write


def main() -> None:
    """Writes one file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", type=Path, nargs="+", required=True, help="folders of runs")
    parser.add_argument("--metric", nargs="+", required=True, help="keep episodes with a full score in one of these metrics, such as exact_match")
    parser.add_argument("--least", type=float, default=1.0, help="keep episodes with at least this score")
    parser.add_argument("--out", type=Path, required=True, help="file to write")
    args = parser.parse_args()
    found = chain.from_iterable(of_run(run, args.metric, args.least) for run in args.run)
    print(f"{write(found, args.out)} conversations")


if __name__ == "__main__":
    main()
