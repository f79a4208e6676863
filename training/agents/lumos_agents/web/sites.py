"""Websites: kinds with labels, pages and tasks, of which sites with pages and tasks are drawn.

- A label is a list of texts; a site has one of them, the first more often.
- A page is a list of elements: `a:`, `input:`, `button:`, `svg:` and `p:` with a text, `select:` with a text and options after
  `=`, `list:slot` with a link for the task's value and for others of the same slot. `_` is a blank. The elements after `form`
  are a form.
- A task is a list of phrases and a list of steps: page, action, element, and after ` = ` the text. After ` ~ ` is what an agent
  that does not see the page can say about the element.
- `{name}` is a label or a value (`slots.py`): in elements first a label, elsewhere first a value.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from random import Random

from ..invented import number
from .slots import SLOTS

# In Mind2Web, an element is often named by its role instead of its tag.
ROLES = {"a": "link", "input": "textbox", "select": "combobox", "button": "button", "svg": "svg"}
COURSES = ["Soups", "Cakes", "Bread", "Salads"]


@dataclass(frozen=True)
class Kind:
    """A kind of website."""

    name: str
    domain: str
    subdomain: str
    labels: dict[str, list[str]]
    pages: dict[str, str]
    tasks: list[tuple[str, str]]


@dataclass
class Element:
    """An element of a page."""

    tag: str
    text: str
    options: list[str] = field(default_factory=list)


@dataclass
class Step:
    """A gold step: the page's elements, the index of the right one, and the action."""

    page: str
    elements: list[Element]
    index: int
    operation: str
    value: str
    said: str
    role: str

    @property
    def element(self) -> Element:
        """The right element."""
        return self.elements[self.index]

    @property
    def representation(self) -> str:
        """The step in the data set's words."""
        return f"[{self.role}]  {self.element.text} -> {self.operation}" + (f": {self.value}" if self.value else "")


@dataclass
class WebTask:
    """A task on a website."""

    site: str
    domain: str
    subdomain: str
    text: str
    steps: list[Step]


def _course(dish: str) -> str:
    """Returns the course of a dish by its last word."""
    last = dish.split()[-1].lower()
    known = {"soup": "Soups", "stew": "Soups", "bread": "Bread", "rolls": "Bread", "salad": "Salads"}
    return known.get(last, "Cakes")


def draw_values(r: Random) -> dict[str, str]:
    """Returns a value of every slot, and what follows from them."""
    values: dict[str, str] = {}
    for make in SLOTS.values():
        values.update(make(r))
    dish = values["dish_said"]
    if r.random() < 0.7:
        dish = f"{dish.rsplit(' ', 1)[0]} {r.choice(('soup', 'stew', 'bread', 'rolls', 'salad', 'cake', 'cake', 'pie', 'tart'))}"
    values["dish"] = values["dish_c"] = dish.capitalize()
    values["dish_a"] = f"{'an' if dish[0] in 'aeiou' else 'a'} {dish}"
    values["course"] = _course(dish)
    values["course_l"] = values["course"].lower()
    for short, what in (("csort", values["course_l"]), ("gsort", values["goods"] + "s")):
        sort = SLOTS["sort"](r)
        values[short], values[f"{short}_said"] = sort["sort"], sort["sort_said"].format(what)
    for name in ("goods", "job", "topic"):
        values[f"{name}_c"] = values[name].capitalize()
    values["zip2"] = number(r, 5)
    for index in range(1, 6):
        values[f"n{index}"] = str(r.randint(40, 260))
    rooms = {"Single": "n1", "Double": "n2", "Suite": "n3", "Twin": "n4", "Family": "n5"}
    room = values["room"]
    values["room_label"] = f"{room}{'' if room == 'Suite' else ' room'}, {values[rooms[room]]} a night"
    values["connection"] = f"{r.randint(5, 22):02}:{r.randrange(0, 60, 5):02}, {r.randint(20, 90)} minutes"
    return values


def fill(text: str, *contexts: dict[str, str]) -> str:
    """Replaces `{name}` by the first context that has the name."""
    return re.sub(r"\{(\w+)\}", lambda m: next(context[m[1]] for context in contexts if m[1] in context), text)


def _blanks(text: str) -> str:
    """Replaces `_` by a blank, except in names in braces."""
    return re.sub(r"\{\w+\}|_", lambda m: " " if m[0] == "_" else m[0], text)


def _listed(r: Random, slot: str, values: dict[str, str]) -> list[str]:
    """Returns the texts of a list: the task's value and three others, in any order."""
    if slot == "connection":
        others = [draw_values(r)["connection"] for _ in range(2)]
        texts = [values["connection"], *others]
    else:
        shown = f"{slot}_c" if f"{slot}_c" in values else slot
        texts = [values[shown]]
        while len(texts) < 4:
            other = draw_values(r)[shown]
            if other not in texts:
                texts.append(other)
    r.shuffle(texts)
    return texts


def _page(r: Random, spec: str, labels: dict[str, str], values: dict[str, str]) -> list[Element]:
    """Returns the elements of a page."""
    elements = []
    for part in spec.split():
        tag, _, rest = part.partition(":")
        if tag == "form":
            elements.append(Element("form", ""))
        elif tag == "list":
            kind = "button" if rest == "connection" else "a"
            elements += [Element(kind, text) for text in _listed(r, rest, values)]
        else:
            text, _, options = rest.partition("=")
            shown = [fill(_blanks(option), values, labels) for option in options.split("|")] if options else []
            elements.append(Element(tag, fill(_blanks(text), labels, values), list(dict.fromkeys(shown))))
    return elements


def _unseen(kind: Kind, element: str) -> str:
    """Returns how an agent that does not see the page names an element with a label: by all texts that sites of the kind have there."""
    return " or ".join(dict.fromkeys(kind.labels[element[1:-1]])) if element[1:-1] in kind.labels else ""


def draw_task(r: Random, kinds: list[Kind]) -> WebTask:
    """Returns a task on a new site of one of these kinds."""
    kind = r.choice(kinds)
    labels = {name: texts[0] if r.random() < 0.6 else r.choice(texts) for name, texts in kind.labels.items()}
    values = draw_values(r)
    phrases, steps = kind.tasks[r.randrange(len(kind.tasks))]
    text = fill(r.choice(phrases.split("|")), values, labels)
    text = text[0].upper() + text[1:]
    if text[-1] not in "?." and r.random() < 0.15:
        text += "."
    by_role = r.random() < 0.2
    pages: dict[str, list[Element]] = {}
    made = []
    for step in steps.split(";"):
        target, _, value = step.strip().partition(" = ")
        page, operation, element = target.split(" ", 2)
        element, _, said = element.partition(" ~ ")
        name = fill(element, labels, values)
        if page not in pages:
            pages[page] = _page(r, kind.pages[page], labels, values)
        elements = pages[page]
        wanted = {"TYPE": ("input",), "SELECT": ("select",), "CLICK": ("button", "a")}[operation]
        index = next(i for tag in wanted for i, e in enumerate(elements) if e.tag == tag and e.text == name)
        tag = elements[index].tag
        said = fill(said, values) or _unseen(kind, element) or name
        made.append(Step(page, elements, index, operation, fill(value, values, labels), said, ROLES[tag] if by_role else tag))
    return WebTask(f"{kind.name}-{number(r, 4)}", kind.domain, kind.subdomain, text, made)


__all__ = ["Element", "Kind", "Step", "WebTask", "draw_task", "draw_values"]
