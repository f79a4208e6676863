"""Generates tasks of a domain with their worlds, in the formats that the product reads."""

from __future__ import annotations

import argparse
from pathlib import Path

from lumos_agents.texts import DOMAINS, domain

SPLITS = ("train", "dev", "test")


def main() -> None:
    """Writes one folder."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--domain", choices=DOMAINS, required=True)
    parser.add_argument("--split", choices=SPLITS, required=True)
    parser.add_argument("--count", type=int, default=1000, help="number of tasks")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, required=True, help="folder to write")
    parser.add_argument("--text", type=Path, nargs="+", help="files of HotpotQA's training split, as JSON lines; sql: for names and values of --wide")
    parser.add_argument("--varied", action="store_true", help="sql: compound names, and questions with other words than the names")
    parser.add_argument("--wide", type=float, metavar="SHARE", help="sql: share of databases of many areas, with more kinds of questions")
    parser.add_argument("--strict", type=float, metavar="SHARE", help="sql: share of databases with columns that are NOT NULL or have a default")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    options = {"texts": args.text} if args.text else {}
    if args.varied:
        options["varied"] = True
    if args.wide:
        options["wide"] = args.wide
    if args.strict:
        options["strict"] = args.strict
    domain(args.domain).generate(args.split, args.seed, args.count, args.out, **options)


if __name__ == "__main__":
    main()
