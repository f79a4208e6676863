"""Generates catalogues in WebShop's format: products with options, prices and a synthetic instruction each."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random

from ..invented import code, word
from ..splits import split_of
from .words import ATTRIBUTES, COLOURS, DEPARTMENTS, VALUES, alike, option_names, style

GOALS_PER_PRODUCT = 2.2
MOST_GOALS = 6


def instruction(r: Random, kind: str, attributes: list[str]) -> str:
    """Returns an instruction in the words of WebShop's synthetic ones."""
    before, after, purpose = [], [], []
    for attribute in attributes:
        r.choices((before, after, purpose), (5, 4, 1))[0].append(attribute)
    text = "Find me " + ", ".join(before) + (" " if before else "") + kind
    if after:
        text += " with " + ", ".join(after)
    if purpose:
        text += " for " + ", ".join(purpose)
    return text


def product(r: Random, asin: str) -> tuple[dict, dict]:
    """Returns a product and its record of attributes."""
    category, path, kinds = r.choice(DEPARTMENTS)
    kind = r.choice(kinds.split("|"))
    if r.random() < 0.25:
        kind = f"{word(r)} {kind}" if r.random() < 0.5 else f"{r.choice(ATTRIBUTES).split()[-1]} {kind}"
    brand = word(r, 2, 3).title()
    attributes = alike(r, r.randint(2, 5)) if r.random() < 0.45 else r.sample(ATTRIBUTES, r.randint(1, 4))
    if r.random() < 0.15:
        kind = f"{r.choice(attributes).split()[-1]} {kind}"
    if r.random() < 0.3:
        attributes.append(f"{word(r)} {word(r)}")
    options: dict[str, list[str]] = {}
    goals = 1
    for name in option_names(r):
        most = max(1, min(4, MOST_GOALS // goals))
        values = list(dict.fromkeys(VALUES.get(name, style)(r).replace(", ", " ") for _ in range(r.randint(1, most))))
        options[name] = values
        goals *= len(values)
    asked = r.sample(attributes, min(len(attributes), r.randint(1, 4)))
    title = f"{brand} {kind.title()}, {', '.join(a.title() for a in r.sample(attributes, min(2, len(attributes))))}"
    extra = [r.choice(COLOURS).title(), f"{r.randint(2, 12)} Pack", word(r).title(), r.choice(NOUN_TITLES), f"({r.randint(5, 60)} x {r.randint(5, 60)} Inch)"]
    title += " " + " ".join(r.sample(extra, r.randint(0, 3)))
    price = r.uniform(5, 180)
    record = {
        "asin": asin,
        "name": title.strip(),
        "category": category,
        "query": kind,
        "product_category": f"{path} › {kind.title()}",
        "full_description": f"{title} by {brand}. {r.choice(attributes).capitalize()}.",
        "small_description": [a.capitalize() + r.choice(("", ".", " for every day", f" {word(r)}")) for a in attributes],
        "pricing": f"${price:.2f}" if r.random() < 0.8 else f"${price:.2f} - ${price * 1.4:.2f}",
        "images": [],
        "customization_options": {name: [{"value": v} for v in values] for name, values in options.items()} or "",
    }
    return record, {"attributes": attributes, "instruction": instruction(r, kind, asked), "instruction_attributes": asked}


NOUN_TITLES = "Gift|Home Decor|Women Men|Office|Kitchen|Outdoor|Kids Adults|Travel|Large Capacity|Bedroom Living Room|Set|Upgraded Version".split("|")


def asin_of(r: Random, number: int) -> str:
    """Returns an identifier: ten letters and digits, sometimes consecutive, sometimes of few different characters."""
    chance = r.random()
    if chance < 0.25:
        return f"LM{number:08}"
    if chance < 0.45:
        few = code(r, 3)
        return "B0" + "".join(r.choice(few) for _ in range(8))
    return r.choice(("B0", "B0", "", "1")) + code(r, 8)


def generate(split: str, seed: int, count: int, folder: Path) -> None:
    """Writes `webshop/items_1000_documents.jsonl` and `webshop/items_ins_v2_1000.json` with at least `count` goals of a split.

    Products whose instruction belongs to another split have no goals, and are in the shop all the same.
    """
    r = Random(f"shop {seed} {split}")
    records, attributes = [], {}
    goals = 0
    while goals < count:
        record, attribute = product(r, asin_of(r, len(records) + 1))
        if record["asin"] in attributes:
            continue
        if split_of(attribute["instruction"]) == split:
            combinations = 1
            for values in (record["customization_options"] or {}).values():
                combinations *= len(values)
            goals += combinations
        elif split == "test" and r.random() < 0.8:
            continue  # keeps a small catalogue small
        else:
            attribute = {"attributes": attribute["attributes"]}
        records.append(record)
        attributes[record["asin"]] = attribute
    shop = folder / "webshop"
    shop.mkdir(parents=True, exist_ok=True)
    with (shop / "items_1000_documents.jsonl").open("w") as file:
        file.writelines(json.dumps(record, ensure_ascii=False) + "\n" for record in records)
    (shop / "items_ins_v2_1000.json").write_text(json.dumps(attributes, ensure_ascii=False))
