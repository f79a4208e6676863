"""Short worlds about equal groups, prices, rates, measures and multiples."""

from __future__ import annotations

from random import Random

from . import words
from .cast import noun, number, size, teller, two_things
from .story import World


def _factors(r: Random) -> tuple[int, int]:
    """Returns two factors of a product, both small or one of them larger."""
    if r.random() < 0.6:
        return number(r, 2, 12), number(r, 2, 15)
    if r.random() < 0.7:
        return number(r, 2, 20), number(r, 10, 100)
    return number(r, 10, 60), number(r, 10, 200)


def groups(r: Random) -> World:
    """A number of containers with a number of things each."""
    people = r.random() < 0.25
    thing = noun(r, words.PEOPLE if people else words.THINGS + words.LIVING[:20])
    box = r.choice(words.PEOPLE_GROUPS if people else words.CONTAINERS)
    n, k = _factors(r)
    if r.random() < 0.5:
        n, k = k, n
    box2 = r.choice(words.CONTAINERS)
    c = teller(r, o=thing, O=words.singular(thing), X=box, x=words.singular(box), n=n, k=k, t=n * k)
    c.set(z=noun(r), u=number(r, 2, 60), Y=box2, y=words.singular(box2), m=number(r, 2, 20))
    facts = [
        c.fact("t", "[{A} has {t} {o}|There are {t} {o}|{A} bought {t} {o}|A total of {t} {o} were there|"
               "{A} is [packing|arranging|putting] {t} {o}].", "{A} has [some|a lot of|many] {o}."),
        c.fact("u", "[There are also|{he} also has] {u} {z}."),
        c.fact("n", "[There are {n} {X}|{he} has {n} {X}|{A} uses {n} {X}|They are [put into|divided into|in] {n} {X}|"
               "{he} [filled|bought|used] {n} {X}].", "They are in {X}."),
        c.fact("k", "[Each {x} [has|holds|contains] {k} {o}|There are {k} {o} in [each|every] {x}|"
               "{he} put {k} {o} in each {x}|Every {x} can hold {k} {o}|Each {x} has {k} {o} in it].",
               "Each {x} has the same number of {o}."),
        c.fact("m", "[There are {m} {z} in each {y}|The {X} cost {m} dollars each|{he} also saw {m} {Y}]."),
    ]
    asks = [
        c.ask("How many {o} [are there|does {A} have|are there in all|are there altogether|are in all {n} {X}|did {A} have] "
              "[|in total|altogether]?", "the total number of {o}", f"{n} * {k}", "n k", "t"),
        c.ask("How many {o} [are|will be|are there|did {he} put|does {he} put|should be] in each {x}?",
              "the number of {o} in each {x}", f"{n * k} / {n}", "t n", "k"),
        c.ask("How many {X} [does {A} need|are there|can {he} fill|did {he} use|will {he} need|did {A} fill|are needed|will there be]?",
              "the number of {X}", f"{n * k} / {k}", "t k", "n"),
        c.ask("How many {o} does [each|every|one] {x} [have|hold|contain]?", "the number of {o} in each {x}",
              f"{n * k} / {n}", "t n", "k"),
    ]  # fmt: skip
    if people:
        asks.append(c.ask("[If they split into {X} of the same size|If each {x} has the same number], how many {o} are in one {x}?".replace("{n}", ""),
                          "the number of {o} in one {x}", f"{n * k} / {n}", "t n", "k"))  # fmt: skip
    return World(c, facts, asks, shuffle=r.random() < 0.4, extra=0.25,
                 lead=["{A} is [organizing|sorting] {his} {o}.", "The {P} has many {o}."])  # fmt: skip


def two_groups(r: Random) -> World:
    """Two kinds of things in the same or in different containers."""
    first, second = two_things(r)
    box = r.choice(words.CONTAINERS)
    n, k = number(r, 2, 25), number(r, 2, 40)
    j, m = number(r, 2, 40), number(r, 2, 25)
    same = r.random() < 0.4
    other = box if same else r.choice(words.CONTAINERS)
    if same:
        m = n
    c = teller(r, o=first, z=second, X=box, x=words.singular(box), Y=other, y=words.singular(other))
    c.set(n=n, k=k, m=m, j=j, t=n * k, u=m * j)
    if same:
        facts = [
            c.fact("n", "[{A} has|There are|{A} bought|{he} packed] {n} {X}.", "{A} has some {X}."),
            c.fact("k", "[Each|Every] {x} [has|holds|contains] {k} {o} and {j} {z}."),
            c.fact("t", "[{A} has {t} {o} [and {u} {z}|] in all|There are {t} {o} and {u} {z} in total]."),
        ]
        need, total = "n k", "t"
    else:
        facts = [
            c.fact("n", "[{A} has|There are|{A} bought] {n} {X} of {o} and {m} {Y} of {z}."),
            c.fact("k", "[Each {x} has {k} {o} and each {y} has {j} {z}|There are {k} {o} in a {x} and {j} {z} in a {y}|"
                   "Each {x} of {o} has {k} {o} and each {y} of {z} has {j} {z}]."),
        ]  # fmt: skip
        need, total = "n k", ""
    asks = [
        c.ask("How many {o} [are there|does {A} have|did {A} get] [|in total|altogether|in all]?", "the total number of {o}",
              f"{n} * {k}", need, total),
        c.ask("How many {z} [are there|does {A} have|did {A} get] [|in total|altogether|in all]?", "the total number of {z}",
              f"{m} * {j}", need, total),
    ]  # fmt: skip
    if same:
        asks.append(c.ask("How many {o} and {z} are there [in total|altogether|in all]?", "the total number of {o} and {z}",
                          [f"{k} + {j}", f"R1 * {n}"], need, total))  # fmt: skip
        if k > j:
            asks.append(c.ask("How many more {o} than {z} are [there|in each {x}]?".replace("[there|in each {x}]", "in each {x}"),
                              "how many more {o} than {z} each {x} has", f"{k} - {j}", need, total))  # fmt: skip
            asks.append(c.ask("How many more {o} than {z} does {A} have?", "how many more {o} than {z} there are",
                              [f"{k} - {j}", f"R1 * {n}"], need, total))  # fmt: skip
        asks.append(c.ask("How many {o} and {z} are in each {x}?", "the number of {o} and {z} in each {x}",
                          f"{k} + {j}", need, total))  # fmt: skip
    else:
        asks.append(c.ask("How many {X} and {Y} are there [altogether|in total]?", "the total number of {X} and {Y}",
                          f"{n} + {m}", need))  # fmt: skip
        if n > m and box != other:
            asks.append(c.ask("How many more {X} than {Y} [are there|does {A} have|did {A} get]?", "how many more {X} than {Y} there are",
                              f"{n} - {m}", need))  # fmt: skip
    return World(c, facts, asks, extra=0.4)


def share(r: Random) -> World:
    """A total, sometimes a sum of parts, that is divided, or reduced and then divided."""
    thing = noun(r)
    n, k = _factors(r)
    t = n * k
    x = number(r, 1, max(2, min(t - 1, 100)))
    one, two = (f"{w} {thing}" for w in r.sample(words.COLOURS if r.random() < 0.6 else words.QUALITIES, 2))
    c = teller(r, o=thing, n=n, k=k, t=t, x=x, a=t - x, b=t + x, g=one, h=two)
    box = r.choice(words.CONTAINERS)
    c.set(W=r.choice(("friends", "students", "children", "people", "classmates", "cousins", "neighbors", "kids")))
    c.set(X=box, y=words.singular(box))
    style = r.randrange(5)
    if style == 0:
        facts = [
            c.fact("t", "{A} [has|had|bought|baked] {t} {o}."),
            c.fact("n", "[{he} wants to [share|divide|split] them [equally|evenly] [among|between] {n} {W}|{he} [shared|divided|split] them equally among {n} {W}]."),
            c.fact("x", "{he} also has {x} {g}."),
        ]
        asks = [c.ask("How many {o} [does|will|did] each [person|one|of them|of the {W}] get?", "the number of {o} each one gets",
                      f"{t} / {n}", "t n")]  # fmt: skip
    elif style == 1:
        facts = [
            c.fact("ab", "{A} has {a} {g} and {x} {h}.") if t > x else c.fact("ab", "{A} has {x} {h}."),
            c.fact("n", "[If the {o} are [organized into|divided into|put in|split into] {n} [equal groups|{X}]|{he} puts all {o} equally into {n} {X}|{he} wants to make {n} equal groups]."),
            c.fact("k", "[{he} puts {k} {o} in each {y}|Each {y} holds {k} {o}]."),
        ]
        asks = [
            c.ask("How [big is each group|many {o} are in each {y}|many {o} will be in each {y}]?", "the number of {o} in each {y}",
                  [f"{t - x} + {x}", f"R1 / {n}"], "ab n", "k"),
            c.ask("How many {X} [does {A} need|can {he} fill|will {he} use]?", "the number of {X} needed",
                  [f"{t - x} + {x}", f"R1 / {k}"], "ab k", "n"),
            c.ask("How many {o} does {A} have [altogether|in all]?", "the total number of {o}", f"{t - x} + {x}", "ab"),
        ]  # fmt: skip
    elif style == 2:
        facts = [
            c.fact("b", "{A} [has|had|bought] {b} {o}."),
            c.fact("x", "{he} [gave {x} [to {B}|away]|ate {x} of them|lost {x}|used {x} of them|threw {x} away|sold {x} of them]."),
            c.fact("n", "{he} [put|placed|divided|packed] [the rest|the remaining {o}|what was left] [equally|evenly] [in|into] {n} {X}."),
            c.fact("k", "{he} puts the rest in {X} of {k} {o} each."),
        ]
        asks = [
            c.ask("How many {o} are in each {y}?", "the number of {o} in each {y}", [f"{t + x} - {x}", f"R1 / {n}"], "b x n", "k"),
            c.ask("How many {X} [are there|does {he} use|can {he} fill]?", "the number of {X}", [f"{t + x} - {x}", f"R1 / {k}"], "b x k", "n"),
            c.ask("How many {o} [were left|did {A} have left]?", "the number of {o} left", f"{t + x} - {x}", "b x", "n k"),
        ]  # fmt: skip
    elif style == 3:
        facts = [
            c.fact("n", "{A} [has|bought|filled|packed] {n} {X}[| of {o}]."),
            c.fact("k", "Each {y} [has|holds|contains] {k} {o}."),
            c.fact("x", "[{he} [ate|sold|gave away|lost|used|threw away] {x} [of the {o}|{o}|of them]|{x} of the {o} were [broken|bad|lost|eaten|sold]]."),
        ]
        asks = [
            c.ask("How many {o} [are left|does {he} have left|does {A} have now|remain]?", "the number of {o} left",
                  [f"{n} * {k}", f"R1 - {x}"], "n k x"),
            c.ask("How many {o} [were there|did {A} have] [at first|in all|in total|in the beginning]?", "the number of {o} at first",
                  f"{n} * {k}", "n k"),
        ]  # fmt: skip
    else:
        facts = [
            c.fact("n", "{A} [has|bought|filled|packed] {n} {X}[| of {o}]."),
            c.fact("k", "Each {y} [has|holds|contains] {k} {o}."),
            c.fact("x", "[{he} also has {x} {o} [that are loose|outside the {X}|more]|{x} {o} did not fit|{B} gave {him} {x} more {o}|{x} {o} are left over]."),
        ]
        asks = [
            c.ask("How many {o} [are there|does {A} have] [in total|altogether|in all|now]?", "the total number of {o}",
                  [f"{n} * {k}", f"R1 + {x}"], "n k x"),
            c.ask("How many {o} are in the {X}?", "the number of {o} in the {X}", f"{n} * {k}", "n k"),
        ]  # fmt: skip
    return World(c, facts, asks, extra=0.45)


def price(r: Random) -> World:
    """Several units of one item, bought with a budget."""
    thing = noun(r)
    n, p = number(r, 2, 15), number(r, 2, r.choice((12, 30, 120)))
    cost = n * p
    left = number(r, 1, 100)
    c = teller(r, o=thing, O=words.singular(thing), n=n, u=number(r, 2, 40), z=noun(r))
    c.set(p=c.cash(p), t=c.cash(cost), b=c.cash(cost + left), l=c.cash(left), q=c.cash(number(r, 1, 30)))
    facts = [
        c.fact("b", "{A} [has|had|went to the store with|had saved] {b}.", "{A} had some money."),
        c.fact("p", "[Each|One|A] {O} [costs|cost|is sold for|is] {p}[| at the {P}].", "{he} likes {o}."),
        c.fact("q", "A {O} used to cost {q}."),
        c.fact("n", "{he} [bought|buys|ordered|paid for|got] {n} {o}.", "{he} bought some {o}."),
        c.fact("t", "{he} [paid|spent|pays] {t} [in total|altogether|for the {o}|for {n} {o}|].".replace("for {n} {o}|", ""),
               "{he} paid for the {o}."),
        c.fact("l", "{he} had {l} left."),
    ]
    asks = [
        c.ask("How much [did {A} pay|did {he} spend|money did {A} spend|do the {o} cost] [|in total|altogether|in all]?",
              "the total cost of the {o}", f"{n} * {p}", "p n", "t l"),
        c.ask("How much [does|did] [each|one] {O} cost?", "the cost of each {O}", f"{cost} / {n}", "n t", "p l q"),
        c.ask("What is the price of [one|each] {O}?", "the price of one {O}", f"{cost} / {n}", "n t", "p l q"),
        c.ask("How many {o} did [{A}|{he}] buy?", "the number of {o} bought", f"{cost} / {p}", "p t", "n l"),
        c.ask("How much money [does {he} have left|did {A} have left|does {A} have now|is left]?", "the money left",
              [f"{n} * {p}", f"{cost + left} - R1"], "b p n", "t l"),
        c.ask("How much money [does {he} have left|did {A} have left|does {A} have now]?", "the money left",
              f"{cost + left} - {cost}", "b t", "l p"),
        c.ask("How much [money did {A} spend|did {he} spend]?", "the money spent", f"{cost + left} - {left}", "b l", "t n p"),
        c.ask("How much money did {A} have [at first|before buying the {o}|in the beginning]?", "the money at first",
              f"{cost} + {left}", "t l", "b p"),
        c.ask("How many {o} can {he} buy with {t}?", "the number of {o} {he} can buy", f"{cost} / {p}", "p", "n t l b q"),
    ]  # fmt: skip
    return World(c, facts, asks, extra=0.18, shuffle=False, lead=["{A} went shopping.", "{A} wanted to buy {o}."])


def two_prices(r: Random) -> World:
    """Two items with different prices, incomes and expenses."""
    first, second = two_things(r)
    a, b = number(r, 2, 90), number(r, 2, 90)
    if a == b:
        a += 1
    n, m = number(r, 2, 12), number(r, 2, 12)
    budget = a + b + number(r, 1, 100)
    c = teller(r, o=words.singular(first), z=words.singular(second), O=first, Z=second, n=n, m=m)
    c.set(a=c.cash(a), b=c.cash(b), w=c.cash(budget), l=c.cash(budget - a - b), s=c.cash(a + b), k=c.cash(budget - a))
    hi, lo, h, w = (a, b, "o", "z") if a > b else (b, a, "z", "o")
    facts = [
        c.fact("w", "{A} [has|had|saved] {w}."),
        c.fact("ab", "{he} [spent {a} on a {o} and {b} on a {z}|bought a {o} for {a} and a {z} for {b}|paid {a} for a {o} and {b} for a {z}]."
               if r.random() < 0.6 else "A {o} costs {a} and a {z} costs {b}.", "{he} bought a {o} and a {z}."),
        c.fact("nm", "{he} already has {n} {O} and {m} {Z}."),
        c.fact("s", "The two things cost {s} together."),
        c.fact("l", "{he} had {l} left."),
    ]
    asks = [
        c.ask("How much [did {A} spend|did {he} pay|do they cost] [in total|altogether|in all]?", "the total cost of the {o} and the {z}",
              f"{a} + {b}", "ab", "s l"),
        c.ask("How much more [does|did] the {" + h + "} cost than the {" + w + "}?", "how much more the {" + h + "} costs",
              f"{hi} - {lo}", "ab", "s"),
        c.ask("How much [cheaper is|less does] the {" + w + "} [than|cost than] the {" + h + "}?".replace("[than|cost than]", "than"),
              "how much less the {" + w + "} costs", f"{hi} - {lo}", "ab", "s"),
        c.ask("How much money [does {A} have left|did {he} have left|is left]?", "the money left",
              [f"{a} + {b}", f"{budget} - R1"], "w ab", "s l"),
        c.ask("How much did {A} spend?", "the money spent", f"{budget} - {budget - a - b}", "w l", "ab s"),
        c.ask("How many {O} and {Z} does {A} [already have|have] [altogether|in all]?", "the number of {O} and {Z} {A} has",
              f"{n} + {m}", "nm"),
    ]  # fmt: skip
    return World(c, facts, asks, extra=0.25)


def rate(r: Random) -> World:
    """An amount per hour, day or week."""
    past, base, s3, things = r.choice((
        ("read", "read", "reads", "pages|books|chapters"), ("made", "make", "makes", "toys|chairs|cakes|shirts|boxes|cookies"),
        ("ran", "run", "runs", "miles|laps|kilometers"), ("earned", "earn", "earns", "dollars|points"),
        ("drove", "drive", "drives", "miles|kilometers"), ("picked", "pick", "picks", "apples|flowers|berries|oranges|pounds of fruit"),
        ("typed", "type", "types", "words|pages"), ("washed", "wash", "washes", "cars|dishes|windows"),
        ("solved", "solve", "solves", "problems|puzzles"), ("wrote", "write", "writes", "letters|pages|songs|stories"),
        ("drank", "drink", "drinks", "cups of water|glasses of milk|bottles of water"), ("produced", "produce", "produces", "cars|bottles|phones|candles"),
        ("practiced", "practice", "practices", "songs|hours|minutes"), ("ate", "eat", "eats", "apples|eggs|cookies|pieces of candy"),
        ("planted", "plant", "plants", "trees|flowers|seeds"), ("packed", "pack", "packs", "boxes|bags"), ("saved", "save", "saves", "dollars|coins"),
    ))  # fmt: skip
    unit = r.choice(("hour", "day", "week", "minute", "month", "day", "hour", "year", "night", "morning"))
    k, n = _factors(r)
    if n > 60:
        n, k = k, n
    c = teller(r, v=past, b=base, s=s3, o=r.choice(things.split("|")), U=unit, V=unit + "s", k=k, n=n, t=k * n)
    c.set(x=number(r, 2, 50), z=noun(r), y=number(r, 1, k * n))
    who = r.choice(("{A}", "{A}", "A worker", "A machine", "The team", "{B}"))
    c.set(W=c(who))
    facts = [
        c.fact("k", "{W} {s} {k} {o} [each|every|per|a] {U}.", "{W} {s} the same number of {o} every {U}."),
        c.fact("n", "[{W} [worked|did this|kept going] for {n} {V}|{he} does this for {n} {V}|It [took|lasted] {n} {V}]."),
        c.fact("t", "[In all|In total|Altogether] {W} {v} {t} {o}.", "{W} wants to {b} many {o}."),
        c.fact("x", "{B} {v} {x} {o}[| in {n} {V}].".replace("[| in {n} {V}]", "")),
    ]
    asks = [
        c.ask("How many {o} [does|did|will] {W} {b} in {n} {V}?", "the number of {o} in all", f"{k} * {n}", "k", "n t"),
        c.ask("How many {o} did {W} {b} [in total|altogether|in all|in that time]?", "the total number of {o}", f"{k} * {n}", "k n", "t"),
        c.ask("How many {o} did {W} {b} [each|per|every] {U}?", "the number of {o} per {U}", f"{k * n} / {n}", "n t", "k"),
        c.ask("How many {V} did [it take|{W} need|this take]?", "the number of {V}", f"{k * n} / {k}", "k t", "n"),
        c.ask("How [long|many {V}] will it take {W} to {b} {t} {o}?", "the number of {V} needed", f"{k * n} / {k}", "k", "n t"),
        c.ask("If {W} {v} {t} {o} in {n} {V}, how many {o} is that per {U}?", "the number of {o} per {U}", f"{k * n} / {n}", "",
              "k n t"),
    ]  # fmt: skip
    if c.slots["W"] != c.slots["B"]:
        y = number(r, 1, k * n - 1)
        c.set(y=y)
        facts.append(c.fact("y", "[So far|Already] {W} {v} {y} of [them|the {o}]."))
        asks.append(c.ask("How many {o} are [left|still to be done]?", "the number of {o} left", f"{k * n} - {y}", "t y", "k n"))
        asks.append(c.ask("How many {o} are left?", "the number of {o} left", [f"{k} * {n}", f"R1 - {y}"], "k n y", "t"))
    asks = [q for q in asks if q.need]
    return World(c, facts, asks, extra=0.2)


def times(r: Random) -> World:
    """One amount is a multiple of another."""
    thing = noun(r)
    k, x = number(r, 2, 9), number(r, 2, r.choice((15, 40, 100)))
    d = number(r, 1, x - 1)
    c = teller(r, o=thing, k=k, x=x, t=k * x, s=k * x + x, d=d, y=number(r, 2, 50))
    factor = {2: "twice", 3: "[three|3] times", 4: "[four|4] times"}.get(k, "{k} times")
    v, b, does = r.choice((("has", "have", "does"), ("has", "have", "does"), ("collected", "collect", "did"),
                           ("sold", "sell", "did"), ("found", "find", "did"), ("picked", "pick", "did")))  # fmt: skip
    c.set(v=v, b=b, do=does, f=c(factor))
    facts = [
        c.fact("x", "{A} {v} {x} {o}."),
        c.fact("k", "{B} {v} {f} as many [{o} as {A}|as {A}]."),
        c.fact("t", "{B} {v} {t} {o}."),
        c.fact("y", "{C} {v} {y} {o}."),
    ]
    asks = [
        c.ask("How many {o} {do} {B} {b}?", "the number of {o} {B} {v}", f"{x} * {k}", "x k", "t"),
        c.ask("How many {o} {do} {A} {b}?", "the number of {o} {A} {v}", f"{k * x} / {k}", "k t", "x"),
        c.ask("How many {o} {do} [they|{A} and {B}] {b} [together|altogether|in total]?", "the total number of {o}",
              [f"{x} * {k}", f"R1 + {x}"], "x k", "t y"),
        c.ask("How many more {o} {do} {B} {b} than {A}?", "how many more {o} {B} {v}", [f"{x} * {k}", f"R1 - {x}"], "x k", "t"),
        c.ask("How many times as many {o} {do} {B} {b} as {A}?", "how many times as many {o} {B} {v}", f"{k * x} / {x}", "x t", "k"),
        c.ask("How many times [more|as many] {o} {do} {B} {b} [than|compared to] {A}?", "how many times as many {o} {B} {v}",
              f"{k * x} / {x}", "x t", "k"),
    ]  # fmt: skip
    return World(c, facts, asks, shuffle=True, extra=0.25)


def measure(r: Random) -> World:
    """Lengths, heights, weights, distances and durations."""
    what, units, adjective, comparative, opposite = r.choice((
        ("{A}", "inches|feet|centimeters", "tall", "taller", "shorter"), ("The [oak|pine|apple] tree", "feet|meters", "tall", "taller", "shorter"),
        ("The {c1} rope", "feet|meters|inches|yards", "long", "longer", "shorter"), ("The [river|road|bridge|tunnel]", "miles|kilometers|meters", "long", "longer", "shorter"),
        ("{A}'s dog", "pounds|kilograms", "heavy", "heavier", "lighter"), ("The [lake|pool|hole|well]", "feet|meters", "deep", "deeper", "shallower"),
        ("The {c1} [box|bag|crate]", "pounds|kilograms|ounces", "heavy", "heavier", "lighter"), ("The [wall|tower|building|ladder]", "feet|meters", "high", "higher", "lower"),
        ("{A}", "years", "old", "older", "younger"),
    ))  # fmt: skip
    unit = r.choice(units.split("|"))
    x, d = number(r, 3, r.choice((20, 60, 200))), number(r, 1, 40)
    y = x + d
    colour1, colour2 = r.sample(words.COLOURS, 2)
    c = teller(r, U=unit, x=x, d=d, y=y, c1=colour1, c2=colour2, k=number(r, 2, 6))
    c.set(W=c(what), adj=adjective, er=comparative, opp=opposite)
    second = {"{A}": "{B}", "{A}'s dog": "{A}'s cat"}.get(what) or c(what).replace("The ", r.choice(("The other ", "The neighboring ", "The second ")))
    c.set(Z=c(second).replace(colour1, colour2))
    if c.slots["Z"] == c.slots["W"]:
        c.set(Z="the other one")
    weigh = adjective == "heavy"
    be, how = ("weighs", "How much does {0} weigh?") if weigh else ("is", f"How {adjective} is {{0}}?")
    tail = "" if weigh else " {adj}"
    low = c.slots["W"]
    high = c.slots["Z"][0].lower() + c.slots["Z"][1:] if c.slots["Z"].startswith("The ") else c.slots["Z"]
    low_inner = low[0].lower() + low[1:] if low.startswith("The ") else low
    c.set(H=high, L=low_inner)
    facts = [
        c.fact("x", "{L} " + be + " {x} {U}" + tail + "."),
        c.fact("y", "{H} " + be + " {y} {U}" + tail + "."),
        c.fact("d", "[{H} is {d} {U} {er} than {L}|{L} is {d} {U} {opp} than {H}]."),
    ]
    asks = [
        c.ask(how.format("{H}"), "how {adj} {H} is", f"{x} + {d}", "x d", "y"),
        c.ask(how.format("{L}"), "how {adj} {L} is", f"{y} - {d}", "y d", "x"),
        c.ask("How [much|many {U}] {er} is {H} than {L}?", "how much {er} {H} is", f"{y} - {x}", "x y", "d"),
        c.ask("How [much|many {U}] {opp} is {L} than {H}?", "how much {opp} {L} is", f"{y} - {x}", "x y", "d"),
    ]  # fmt: skip
    if adjective in ("long", "tall", "high", "deep") and what != "{A}":
        k = number(r, 2, 6)
        c.set(k=k, kx=k * x)
        facts.append(c.fact("k", "A [cable|pole|path] is {k} times as {adj} as {L}."))
        asks.append(c.ask("How {adj} is the [cable|pole|path]?", "how {adj} it is", f"{x} * {k}", "x k", "y d"))
        asks.append(c.ask("How {adj} is the [cable|pole|path]?", "how {adj} it is", [f"{y} - {d}", f"R1 * {k}"], "y d k", "x"))
    if not weigh and adjective == "old":
        n = number(r, 2, 20)
        c.set(n=n)
        asks.append(c.ask("How old will {L} be in {n} years?", "the age of {L} in {n} years", f"{x} + {n}", "x", "y d"))
        asks.append(c.ask("How old was {L} {n} years ago?", "the age of {L} {n} years ago", f"{x} - {n}", "x", "y d"))
    return World(c, facts, asks, shuffle=True, extra=0.2)


def growth(r: Random) -> World:
    """Something grows, is cut, travels or loses weight over time."""
    top = size(r)
    a, x = number(r, 1, top), number(r, 1, top)
    noun_, unit, grew, did = r.choice((
        ("plant", "inches", "grew {x} inches", "grow"), ("tree", "feet", "grew {x} feet", "grow"), ("puppy", "pounds", "gained {x} pounds", "gain"),
        ("baby", "ounces", "gained {x} ounces", "gain"), ("rope", "meters", "was made {x} meters longer", "gain"), ("snake", "centimeters", "grew {x} centimeters", "grow"),
        ("river", "feet", "rose {x} feet", "rise"), ("temperature", "degrees", "rose by {x} degrees", "rise"), ("price", "dollars", "went up by {x} dollars", "go up"),
    ))  # fmt: skip
    period = r.choice(("year", "month", "week", "day"))
    n = number(r, 2, 12)
    c = teller(r, W=noun_, U=unit, did=did, a=a, x=x, e=a + x, T=period, n=n, g=n * x, eg=a + n * x)
    c.set(grew=c(grew))
    facts = [
        c.fact("a", "[The {W} was {a} {U} [at first|last {T}|in {M}]|{A}'s {W} was {a} {U} at first].".replace("|{A}'s {W} was {a} {U} at first", "")),
        c.fact("x", "[Over the next {T} it|Then it|During the {T} the {W}] {grew}."),
        c.fact("e", "[Now it is|It is now|The {W} is now] {e} {U}."),
    ]
    asks = [
        c.ask("How many {U} is the {W} now?", "the {U} of the {W} now", f"{a} + {x}", "a x", "e"),
        c.ask("How many {U} was the {W} [before|at first|in the beginning]?", "the {U} of the {W} at first", f"{a + x} - {x}", "x e", "a"),
        c.ask("[By how many {U} did the {W} {did}|How many {U} did the {W} {did}]?", "by how many {U} the {W} changed",
              f"{a + x} - {a}", "a e", "x"),
    ]  # fmt: skip
    if r.random() < 0.5:
        c.set(k=c.number(x))
        facts[1] = c.fact("x", "It changes by {x} {U} [every|each|per] {T}[| and keeps going up].".replace("changes by", r.choice(("goes up", "goes up by", "gains"))))
        facts[2] = c.fact("e", "In the end it is {eg} {U}.")
        asks = [
            c.ask("How many {U} will the {W} be after {n} {T}s?", "the {U} of the {W} after {n} {T}s", [f"{x} * {n}", f"R1 + {a}"], "a x", "e"),
            c.ask("By how many {U} does it change in {n} {T}s?", "the change in {n} {T}s", f"{x} * {n}", "x", "e"),
        ]  # fmt: skip
    return World(c, facts, asks, extra=0.25)


def attendance(r: Random) -> World:
    """Games played, won, lost, attended and missed, or pupils present and absent."""
    style = r.choice((
        ("games", "attended", "missed", "{A}'s team played {t} games this [year|season|month]", "attend", "miss", "went to"),
        ("matches", "won", "lost", "{A}'s team played {t} matches this [year|season]", "win", "lose", "won"),
        ("lessons", "took", "missed", "There were {t} lessons this [month|year|week]", "take", "miss", "went to"),
        ("shots", "made", "missed", "{A} took {t} shots in the game", "make", "miss", "made"),
        ("questions", "answered", "skipped", "There were {t} questions on the test", "answer", "skip", "answered"),
        ("meetings", "attended", "missed", "There were {t} meetings this [month|year]", "attend", "miss", "was at"),
    ))  # fmt: skip
    top = size(r)
    x, m = number(r, 1, top), number(r, 1, top)
    p = number(r, 1, top)
    c = teller(r, o=style[0], v=style[1], w=style[2], b=style[4], n=style[5], t=x + m, x=x, m=m, p=p)
    facts = [
        c.fact("t", style[3] + ".", None),
        c.fact("x", "[{he}|{A}] " + style[6] + " {x} {o}[| this time].", "[{he}|{A}] " + style[6] + " some of the {o}."),
        c.fact("m", "{he} {w} {m} {o}[| this time].", "{he} {w} some of the {o}."),
        c.fact("p", "{he} {v} {p} {o} [last year|the year before|before]."),
    ]
    asks = [
        c.ask("How many {o} did {A} {n}?", "the number of {o} {A} {w}", f"{x + m} - {x}", "t x", "m"),
        c.ask("How many {o} did {A} {b}[| this time]?", "the number of {o} {A} {v}", f"{x + m} - {m}", "t m", "x"),
        c.ask("How many {o} [were there|did {he} have the chance to {b}] [in total|in all|altogether]?".replace("did {he} have the chance to {b}", "were there"),
              "the total number of {o}", f"{x} + {m}", "x m", "t p"),
        c.ask("How many {o} did {A} {b} in [both years|the two years] [together|in all]?".replace("the two years", "both years"),
              "the number of {o} {A} {v} in both years", f"{x} + {p}", "x p", "m"),
    ]  # fmt: skip
    facts[3] = c.fact("p", "{he} {v} {p} {o} last year.")
    if x != p:
        more, less = ("this year", "last year") if x > p else ("last year", "this year")
        asks.append(c.ask(f"How many more {{o}} did {{A}} {{b}} {more} than {less}?", f"how many more {{o}} {{A}} {{v}} {more}",
                          f"{max(x, p)} - {min(x, p)}", "x p", "m"))  # fmt: skip
    return World(c, facts, asks, extra=0.3)


WORLDS = (
    (groups, 6), (two_groups, 2), (share, 5), (price, 4), (two_prices, 3), (rate, 4), (times, 2), (measure, 3),
    (growth, 1), (attendance, 2),
)  # fmt: skip
