"""Measures lumos's agent loop and the original's procedure in transformers alternately, in items per second."""

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path

from compare import HERE, MOST_FOREIGN, measured


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--lumos", required=True, help="path of the lumos binary")
    parser.add_argument("--agent-loop", required=True, help="path of the built benchmark agent_loop")
    parser.add_argument("--folder", type=Path, required=True, help="folder for the weights")
    parser.add_argument("--cases", required=True)
    parser.add_argument("--tokenizer", required=True)
    parser.add_argument("--shape", default="110m")
    parser.add_argument("--dtype", default="f32")
    parser.add_argument("--items", type=int, default=200, help="maximum number of items, at least the number of cases in the file")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--most-foreign", type=float, default=MOST_FOREIGN,
                        help="maximum number of processors that other processes may use; other rounds are repeated")
    parser.add_argument("--output", type=Path, help="JSON file for the figures, written after every round")
    arguments = parser.parse_args()
    folder = arguments.folder / f"{arguments.shape}-{arguments.dtype}"
    if not (folder / "model.safetensors").exists():
        save = [arguments.lumos, "bench", "engine", "--random-weights", arguments.shape]
        subprocess.run([*save, "--dtype", arguments.dtype, "--save-weights", folder], check=True)
    cases = ["--cases", arguments.cases, "--tokenizer", arguments.tokenizer, "--threads", str(arguments.threads)]
    cases += ["--dtype", arguments.dtype]
    ours = [arguments.agent_loop, "--shape", arguments.shape, *cases]
    theirs = [sys.executable, HERE / "measure_loop_transformers.py", "--planner", folder, "--grounder", folder]
    theirs += [*cases, "--items", str(arguments.items)]
    programs = {"lumos": ours, "lumos, no reuse": [*ours, "--no-reuse"], "original's procedure": theirs}
    figures = {name: [] for name in programs}
    items = None
    for turn in range(arguments.rounds):
        names = list(programs)
        for name in names[turn % 3 :] + names[: turn % 3]:
            for _ in range(10):
                figure, foreign = measured(programs[name])
                if figure.get("faults"):
                    sys.exit(f"failed to measure: {figure['faults']} of {figure['items']} episodes of {name} failed")
                items = items or figure["items"]
                # lumos measures all cases, the original's procedure the first `--items`.
                if figure["items"] != items or items > arguments.items:
                    sys.exit(f"failed to compare: {name} measured {figure['items']} items with --items {arguments.items}; "
                             f"hint: pass at least the number of cases in {arguments.cases}")
                told = f"round {turn + 1}, {name}: {figure['items_per_second']:.3f} items/s"
                print(f"{told}; other processes used {foreign:.2f} processors", file=sys.stderr, flush=True)
                if foreign <= arguments.most_foreign:
                    break
            else:
                sys.exit("failed to measure: other processes use too much processor time")
            figures[name].append(figure)
        if arguments.output:
            arguments.output.write_text(json.dumps(figures, indent=1))
    rate = lambda name: statistics.median(one["items_per_second"] for one in figures[name])
    for name, all_rounds in figures.items():
        print(f"{name}: {rate(name):.3f} items/s, {json.dumps(all_rounds[0])}")
    for name in list(programs)[:2]:
        ratios = [one["items_per_second"] / two["items_per_second"]
                  for one, two in zip(figures[name], figures["original's procedure"])]
        print(f"{name}: {statistics.median(ratios):.1f} times the original's procedure "
              f"({min(ratios):.1f} to {max(ratios):.1f} over {len(ratios)} rounds)")


if __name__ == "__main__":
    main()
