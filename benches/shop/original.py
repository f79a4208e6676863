"""Measures the shop as text: the original's `WebAgentTextEnv` and lumos on the same visits, in alternating rounds.

Usage: original.py prepare CHECKOUT DATA          writes the catalogue into the checkout and builds its index
       original.py measure CHECKOUT DATA OURS     OURS: path of the built example `shop_steps`
"""

import argparse
import contextlib
import json
import os
import random
import resource
import runpy
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path

PRODUCTS = 1000
# Seed of the recorded goals. The original sets it in the agent's module before it opens the shop.
SEED = 4
# Values of the reward's factor for the product type, the only part that depends on nouns.
FACTORS = [0.0, 0.1, 0.5, 1.0]
# Modules that are imported but not used here: dense search, images, the browser.
UNUSED = [
    "pyserini.encode", "pyserini.search.faiss", "sklearn", "sklearn.linear_model", "sklearn.svm", "torch",
    "transformers", "web_agent_site.envs.web_agent_site_env",
]  # fmt: skip


# Fields that loading adds to a product. The documents already contain them.
LOADED = [
    "Title", "Description", "Reviews", "Rating", "BulletPoints", "Price", "options", "option_to_image", "Attributes",
    "MainImage", "instructions",
]  # fmt: skip


class Unused(types.ModuleType):
    """A module in which every name is an empty class."""

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


def leave_out_unused():
    # spaCy is imported first, because it checks for torch and must not find the empty module.
    import spacy  # noqa: F401

    for name in UNUSED:
        sys.modules[name] = Unused(name)


def prepare(checkout, data):
    """Prepares the checkout like its setup.sh. The raw catalogue is reconstructed from the documents, which contain
    loaded products, with the displayed price as the raw price. Human goals are off, but their file must exist."""
    folder = data / "webshop"
    into, search = checkout / "data", checkout / "search_engine"
    (search / "resources_1k").mkdir(parents=True, exist_ok=True)
    into.mkdir(exist_ok=True)
    documents = [json.loads(line) for line in (folder / "items_1000_documents.jsonl").read_text().splitlines()]
    products = [document["product"] for document in documents]
    items = [{name: value for name, value in one.items() if name not in LOADED} | {"pricing": one["Price"]}
             for one in products]
    (into / "items_shuffle_1000.json").write_text(json.dumps(items))
    (into / "items_human_ins.json").write_text("{}")
    shutil.copyfile(folder / "items_ins_v2_1000.json", into / "items_ins_v2_1000.json")
    shutil.copyfile(folder / "items_1000_documents.jsonl", search / "resources_1k" / "documents.jsonl")
    shutil.rmtree(search / "indexes_1k", ignore_errors=True)
    leave_out_unused()
    # The options in the original's run_indexing.sh.
    sys.argv[1:] = ["--collection", "JsonCollection", "--input", str(search / "resources_1k")]
    sys.argv += ["--index", str(search / "indexes_1k"), "--generator", "DefaultLuceneDocumentGenerator"]
    sys.argv += ["--threads", "1", "--storePositions", "--storeDocvectors", "--storeRaw"]
    runpy.run_module("pyserini.index.lucene", run_name="__main__", alter_sys=True)


def stand_in_for_the_tagger():
    """Returns spaCy's tokenizer with a tagger that marks every word with a letter as a noun, except stop words."""
    import spacy
    from spacy.language import Language

    @Language.component("nouns")
    def nouns(document):
        for token in document:
            if not token.is_stop and any(map(str.isalpha, token.text)):
                token.pos_ = "NOUN"
        return document

    tagger = spacy.blank("en")
    tagger.add_pipe("nouns")
    return tagger


def opened(checkout):
    """Opens the original's environment. Returns it and the names of missing spaCy models."""
    leave_out_unused()
    import rich.style  # noqa: F401  draws random numbers when it is imported
    import spacy

    load, missing = spacy.load, []

    def load_or_stand_in(name, *rest, **named):
        try:
            return load(name, *rest, **named)
        except OSError:
            missing.append(name)
            return stand_in_for_the_tagger()

    spacy.load = load_or_stand_in
    sys.path.insert(0, str(checkout))
    with contextlib.redirect_stdout(sys.stderr):
        from web_agent_site.envs.web_agent_text_env import WebAgentTextEnv

        random.seed(SEED)
        shop = WebAgentTextEnv(observation_mode="text", num_products=PRODUCTS, human_goals=False)
    return shop, missing


def visit(shop, walk):
    shop.reset(session=walk["goal"])
    reward = 0.0
    for action in walk["actions"]:
        _, reward, _, _ = shop.step(action)
    return reward


def without_kind(info):
    """Returns a reward before it is multiplied by the factor for the product type."""
    return sum(info[f"r_{part}"] * info[f"w_{part}"] for part in ("att", "option", "price") if f"r_{part}" in info)


def same(one, two):
    return abs(one - two) < 1e-9


def compare(shop, walks, data):
    """Makes every visit once in the original and prints how far it agrees with lumos."""
    products = [json.loads(line)["product"] for line in (data / "webshop/items_1000_documents.jsonl").open()]
    goals_differ = ("instructions", "instruction_text", "instruction_attributes")
    but_goals = lambda one: {name: value for name, value in one.items() if name not in goals_differ}
    equal = sum(but_goals(one) == but_goals(two) for one, two in zip(shop.server.all_products, products))
    print(f"products: {equal} of {len(products)} loaded as in the documents; {len(shop.server.goals)} goals")
    instructions, found, possible, kinds, unequal = 0, 0, 0, 0, []
    for walk in walks:
        shop.reset(session=walk["goal"])
        for turn, action in enumerate(walk["actions"]):
            _, theirs, _, _ = shop.step(action)
            # Elements that could be clicked before this step.
            clickables, text = shop.text_to_clickable, action[action.index("[") + 1 : -1]
            possible += turn == 0 or text in clickables
            if turn == 1:
                found += text == next(name for name, one in clickables.items() if "product-link" in one["class"])
        session = shop.server.user_sessions[str(walk["goal"])]
        written = f"search[{session['goal']['instruction_text']}]"
        shown = " ".join(shop.instruction_text.split())
        instructions += walk["actions"][0] == written and shown == f"Instruction: {' '.join(written[7:-1].split())}"
        if same(theirs, walk["reward"]):
            continue
        whole = without_kind(session["verbose_info"])
        if any(same(whole * factor, walk["reward"]) for factor in FACTORS):
            kinds += 1
        else:
            unequal.append((walk["goal"], theirs, walk["reward"]))
    count, steps = len(walks), sum(len(walk["actions"]) for walk in walks)
    print(f"instructions: {instructions} of {count} equal; first products found: {found} of {count} equal; "
          f"actions: {possible} of {steps} possible")
    print(f"rewards: {count - kinds - len(unequal)} of {count} equal, {kinds} equal except for the factor for "
          f"the title's nouns, {len(unequal)} otherwise different {unequal[:5] or ''}")


def busy_seconds():
    """Returns the busy time of all processors in seconds, including all processes and time stolen by the host."""
    fields = [int(field) for field in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    user, nice, system, _idle, _waiting, irq, softirq, steal = fields
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def own_seconds():
    """Returns the processor time of this process and its children in seconds."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_CHILDREN, resource.RUSAGE_SELF)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def timed(work):
    """Calls `work`. Returns its result, its wall-clock and processor time in seconds, and the number of processors that
    other processes used meanwhile."""
    start, busy, own = time.perf_counter(), busy_seconds(), own_seconds()
    result = work()
    wall, used = time.perf_counter() - start, own_seconds() - own
    return result, wall, used, (busy_seconds() - busy - used) / wall


def measure(checkout, data, ours, goals, rounds, repeats):
    def visits_of_ours(*more):
        command = [ours, "--data", data, "--goals", str(goals), "--rounds", str(repeats), *more]
        return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True).stdout)

    with tempfile.NamedTemporaryFile(suffix=".jsonl") as file:
        steps = visits_of_ours("--walks", file.name)["steps"]
        walks = [json.loads(line) for line in open(file.name)]
    shop, missing = opened(checkout)
    for name in missing:
        print(f"spaCy's {name} is not installed: all words except stop words count as nouns, without a neural network. "
              "This makes the original faster, so the ratio is a lower bound.")
    # Also a warm-up for the original: Java compiles at run time.
    compare(shop, walks, data)
    theirs_per_second, ours_per_second, ratios = [], [], []
    for turn in range(rounds):
        _, wall, used, foreign = timed(lambda: [visit(shop, walk) for walk in walks])
        theirs_per_second.append(steps / wall)
        figure, _, _, foreign_of_ours = timed(visits_of_ours)
        ours_per_second.append(steps / statistics.median(figure["seconds"]))
        ratios.append(ours_per_second[-1] / theirs_per_second[-1])
        print(f"round {turn + 1}: original {theirs_per_second[-1]:.1f} steps/s (on {used / wall:.2f} processors; "
              f"others {foreign:.2f}), lumos {ours_per_second[-1]:.0f} (others {foreign_of_ours:.2f}), "
              f"{ratios[-1]:.0f} times", flush=True)
    theirs, own = statistics.median(theirs_per_second), statistics.median(ours_per_second)
    print(f"{len(walks)} visits, {steps} steps, medians of {rounds} rounds: original {theirs:.1f} steps/s, "
          f"lumos {own:.0f}, {statistics.median(ratios):.0f} times ({min(ratios):.0f} to {max(ratios):.0f})")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("task", choices=["prepare", "measure"])
    parser.add_argument("checkout", type=lambda path: Path(path).resolve(), help="clone of the original's repository")
    parser.add_argument("data", type=Path)
    parser.add_argument("ours", nargs="?", type=Path)
    parser.add_argument("--goals", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=5, help="how often lumos makes all visits in a round")
    arguments = parser.parse_args()
    if arguments.task == "prepare":
        prepare(arguments.checkout, arguments.data)
    elif arguments.ours is None:
        parser.error("missing OURS: the path of the built example shop_steps")
    else:
        where = arguments.checkout, arguments.data, arguments.ours
        measure(*where, arguments.goals, arguments.rounds, arguments.repeats)


if __name__ == "__main__":
    main()
