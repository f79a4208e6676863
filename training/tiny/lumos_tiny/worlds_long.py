"""Longer worlds with several subgoals, and worlds with decimals, fractions and percentages."""

from __future__ import annotations

from random import Random

from . import words
from .cast import noun, number, teller, two_things
from .story import World


def _cents(r: Random, low: int, high: int) -> tuple[str, float]:
    """Returns a price with cents as text, and its value in cents."""
    cents = r.randint(low, high) * 100 + r.choice((5, 10, 15, 20, 25, 30, 40, 45, 50, 50, 60, 75, 80, 90, 95, 99))
    return f"{cents // 100}.{cents % 100:02d}", cents


def shopping(r: Random) -> World:
    """Several kinds of items, their total cost and the change."""
    first, second = two_things(r)
    n, m = number(r, 2, 12), number(r, 2, 12)
    if r.random() < 0.3:
        (p, pv), (q, qv) = _cents(r, 0, 9), _cents(r, 0, 9)
    else:
        p, q = number(r, 2, 30), number(r, 2, 30)
        pv, qv = p * 100, q * 100
    spent = (n * pv + m * qv) // 100
    budget = spent + number(r, 1, 60)
    c = teller(r, o=first, z=second, O=words.singular(first), Z=words.singular(second), n=n, m=m)
    c.set(p=c.cash(p), q=c.cash(q), b=c.cash(budget))
    facts = [
        c.fact("b", "{A} [has|had|took|brought] {b}[| to the store]."),
        c.fact("nm", "[{he} [buys|bought] {n} {o} at {p} each and {m} {z} at {q} each|{he} [buys|bought] {n} {o} for {p} each and {m} {z} for {q} each|"
               "{he} [buys|bought] {n} {o} that cost {p} each and {m} {z} that cost {q} each]."
               if r.random() < 0.6 else "[Each {O} costs {p} and each {Z} costs {q}|A {O} costs {p} and a {Z} costs {q}]. {he} [buys|bought] {n} {o} and {m} {z}."),
    ]  # fmt: skip
    costs = [("the cost of the {o}", f"{n} * {p}"), ("the cost of the {z}", f"{m} * {q}")]
    asks = [
        c.plan("How much [did {A} spend|does {he} pay|money did {he} spend|did it cost] [in total|altogether|in all|]?",
               [*costs, ("the total cost", "R1 + R2")], "nm", "b"),
        c.plan("How much [money does {he} have left|change does {he} get|money is left|change will {he} get]?",
               [*costs, ("the total cost", "R1 + R2"), ("the money left", f"{budget} - R3")], "b nm"),
    ]  # fmt: skip
    if n * pv > m * qv:
        asks.append(c.plan("How much more did {he} [spend on|pay for] the {o} than [on|for] the {z}?".replace("[on|for]", "for"),
                           [*costs, ("the difference of the costs", "R1 - R2")], "nm", "b"))  # fmt: skip
    return World(c, facts, asks, extra=0.2)


def wages(r: Random) -> World:
    """Hours worked at a wage, then expenses or a bonus."""
    w, h, d, x = number(r, 5, 30), number(r, 2, 10), number(r, 2, 7), number(r, 5, 40)
    c = teller(r, h=h, d=d, j=r.choice(("babysitter", "waiter", "gardener", "tutor", "driver", "painter", "cook", "plumber", "guard")))
    c.set(w=c.cash(w), x=c.cash(x))
    facts = [
        c.fact("w", "[{A} [earns|makes|gets] {w} [an|per|each|every] hour|{A} works as a {j} for {w} an hour]."),
        c.fact("h", "[{he} works {h} hours [a|per|each|every] day for {d} days|{he} worked {h} hours a day, {d} days last week|{he} works {h} hours a day, {d} days a week]."),
        c.fact("minus", "[{he} [spent|spends|paid] {x} on [food|clothes|rent|books|a gift]|{he} has to pay {x} for [food|rent|a uniform]]."),
        c.fact("plus", "[{he} also [got|gets] {x} in tips|{he} also [gets|got] a bonus of {x}]."),
    ]
    base = [("the number of hours worked", f"{h} * {d}"), ("the money earned", f"R1 * {w}")]
    asks = [
        c.plan("How much money [does {he} have left|is left|does {A} have left]?", [*base, ("the money left", f"R2 - {x}")], "w h minus", "plus"),
        c.plan("How much [does {A} earn|did {A} make|money does {he} make] [in total|altogether|in all]?",
               [*base, ("the money with the extra", f"R2 + {x}")], "w h plus", "minus"),
        c.ask("How much [did {A} earn|does {he} make] [in those days|in that time]?", "the money earned",
              [f"{h} * {d}", f"R1 * {w}"], "w h", "plus minus"),
        c.ask("How many hours [did {A} work|does {A} work] [in total|altogether]?", "the number of hours worked", f"{h} * {d}", "h", "plus"),
    ]  # fmt: skip
    return World(c, facts, asks, extra=0.15)


def discount(r: Random) -> World:
    """Discounts, increases, taxes and tips in percent."""
    p = number(r, 1, 40) * 10
    k = r.choice((5, 10, 15, 20, 25, 30, 40, 50, 60, 75))
    thing = words.singular(noun(r))
    c = teller(r, o=thing, k=k)
    c.set(p=c.cash(p))
    facts = [
        c.fact("p", "[A|The] {o} [costs|cost|is sold for] {p}."),
        c.fact("off", "[It is on sale for {k}% off|There is a {k}% discount|The store takes {k}% off|The price [fell|went down] by {k}%|It is {k} percent off]."),
        c.fact("up", "[The price [rose|went up] by {k}%|{he} has to pay {k}% tax on it|The price increases by {k} percent|{he} adds a {k}% tip]."),
    ]
    part = f"{k} / 100 * {p}"
    asks = [
        c.ask("[How much does {A} pay|What is the [new|sale|final] price|How much does it cost now] [for the {o}|]?".replace("[for the {o}|]", ""),
              "the price after the discount", [part, f"{p} - R1"], "p off", "up"),
        c.ask("[How much does {A} pay [in total|]|What is the new price|How much does it cost in the end]?",
              "the price after the increase", [part, f"{p} + R1"], "p up", "off"),
        c.ask("How much [money does {A} save|is the discount|is taken off]?", "the money saved", part, "p off", "up"),
    ]  # fmt: skip
    n = number(r, 2, 8)
    c.set(n=n)
    facts.append(c.fact("n", "{A} buys {n} of them."))
    asks.append(c.plan("How much [does {he} pay in all|does {A} spend in total]?",
                       [("the price after the discount", [part, f"{p} - R1"]), ("the total price", f"R2 * {n}")], "p off n", "up"))  # fmt: skip
    asks[0] = type(asks[0])(asks[0].text, asks[0].steps, asks[0].need, "up n")
    asks[1] = type(asks[1])(asks[1].text, asks[1].steps, asks[1].need, "off n")
    asks[2] = type(asks[2])(asks[2].text, asks[2].steps, asks[2].need, "up n")
    return World(c, facts, asks, extra=0.0)


FRACTIONS = (("half", 1, 2), ("a third", 1, 3), ("one third", 1, 3), ("a quarter", 1, 4), ("one fourth", 1, 4), ("a fifth", 1, 5),
             ("1/2", 1, 2), ("1/3", 1, 3), ("1/4", 1, 4), ("2/3", 2, 3), ("3/4", 3, 4), ("2/5", 2, 5), ("1/5", 1, 5), ("3/5", 3, 5),
             ("two thirds", 2, 3), ("three fourths", 3, 4), ("1/10", 1, 10), ("3/10", 3, 10), ("1/6", 1, 6), ("5/6", 5, 6))  # fmt: skip


def fraction(r: Random) -> World:
    """A fraction or a percentage of a number of things."""
    people = r.random() < 0.35
    thing = noun(r, words.PEOPLE if people else words.THINGS)
    told, top, low = r.choice(FRACTIONS)
    t = low * number(r, 2, 30)
    percent = r.random() < 0.35
    if percent:
        k = r.choice((10, 20, 25, 30, 40, 50, 60, 75, 80))
        t = 20 * number(r, 1, 20)
        told, part, got = f"{k}%", f"{k} / 100 * {t}", k * t // 100
    else:
        part, got = (f"{t} / {low}" if top == 1 else f"{top} / {low} * {t}"), top * t // low
    x = number(r, 1, max(1, t - got - 1))
    c = teller(r, o=thing, t=t, f=told, x=x, col=r.choice(words.COLOURS))
    if people:
        facts = [
            c.fact("t", "There are {t} {o} [in|at] the {P}."),
            c.fact("f", "{f} of [the {o}|them] [are tall|wear glasses|ride the bus|have a pet|like music|can swim|come from abroad]."),
            c.fact("x", "{x} of the others [are new|walk|are tired]."),
        ]
        verb, none = "do so", "do not"
        asks = [
            c.ask("How many {o} are [that|in this part]?".replace("[that|in this part]", "that"), "the number of {o} in that part", part, "t f", "x"),
            c.ask("How many {o} [do not|are not in that group]?".replace("[do not|are not in that group]", "are not"), "the number of the other {o}",
                  [part, f"{t} - R1"], "t f", "x"),
        ]  # fmt: skip
        del verb, none
    else:
        facts = [
            c.fact("t", "{A} [had|has|bought|made|picked] {t} {o}."),
            c.fact("f", "{he} [gave {f} of [them|the {o}] [to {B}|away]|sold {f} of [them|the {o}]|used {f} of [them|the {o}]|lost {f} of [them|the {o}]]."),
            c.fact("x", "Then {he} [lost|sold|gave away|used] {x} [more|of the rest]."),
        ]
        asks = [
            c.ask("How many {o} [does {A} have left|are left|remain]?", "the number of {o} left", [part, f"{t} - R1"], "t f", "x"),
            c.plan("How many {o} [does {A} have left|are left|remain] [now|in the end|]?", [("the number of {o} in the fraction", part),
                   ("the number of {o} after that", f"{t} - R1"), ("the number of {o} left", f"R2 - {x}")], "t f x"),
            c.ask("How many {o} [is that|was that]?", "the number of {o} in the fraction", part, "t f", "x"),
        ]  # fmt: skip
    return World(c, facts, asks, extra=0.0)


def chain(r: Random) -> World:
    """Three actors, each described relative to the previous one."""
    thing = noun(r)
    x, k, d = number(r, 4, 40), number(r, 2, 5), number(r, 1, 20)
    v, b, does = r.choice((("has", "have", "does"), ("collected", "collect", "did"), ("sold", "sell", "did"), ("read", "read", "did"), ("made", "make", "did")))
    half = r.random() < 0.25
    if half:
        x, k = x * 2, 2
    c = teller(r, o=thing, x=x, k=k, d=d, v=v, b=b, do=does)
    factor = "half" if half else {2: "twice", 3: "three times"}.get(k, "{k} times")
    more = r.random() < 0.5 or d >= (x // 2 if half else x * k)
    c.set(f=c(factor))
    first = f"{x} / 2" if half else f"{x} * {k}"
    second = f"R1 {'+' if more else '-'} {d}"
    facts = [
        c.fact("x", "{A} {v} {x} {o}."),
        c.fact("k", "{B} {v} {f} as many [{o} as {A}|as {A}]."),
        c.fact("d", "{C} {v} {d} " + ("more" if more else "fewer") + " [{o} than {B}|than {B}]."),
    ]
    steps = [("the number of {o} {B} {v}", first), ("the number of {o} {C} {v}", second)]
    asks = [
        c.plan("How many {o} {do} [they|the three of them|{A}, {B} and {C}] {b} [altogether|in total|in all|together]?",
               [*steps, ("the total number of {o}", f"{x} + R1 + R2")], "x k d"),
        c.ask("How many {o} {do} {C} {b}?", "the number of {o} {C} {v}", [first, second], "x k d"),
        c.ask("How many {o} {do} {B} {b}?", "the number of {o} {B} {v}", first, "x k"),
    ]
    return World(c, facts, asks, extra=0.3)


def saving(r: Random) -> World:
    """Saving money for a purchase."""
    k, n = number(r, 2, 20), number(r, 2, 15)
    have = number(r, 5, 80)
    cost = have + k * n
    unit = r.choice(("week", "day", "month"))
    thing = words.singular(noun(r))
    gift = number(r, 1, 40)
    c = teller(r, o=thing, U=unit, n=n)
    c.set(c=c.cash(cost), h=c.cash(have), k=c.cash(k), g=c.cash(gift), c2=c.cash(cost + gift))
    gifted = r.random() < 0.4
    facts = [
        c.fact("c", "{A} wants to buy a {o} that costs " + ("{c2}." if gifted else "{c}.")),
        c.fact("h", "[{he} [already has|has|has saved] {h}|{he} saved {h} so far]."),
        c.fact("g", "{B} [gave|gives] {him} {g}."),
        c.fact("k", "{he} [saves|can save|puts aside|earns] {k} [each|every|per|a] {U}."),
    ]
    if gifted:
        asks = [
            c.plan("How many {U}s [does {he} need to save|will it take|must {he} wait]?",
                   [("the money {A} has", f"{have} + {gift}"), ("the money still needed", f"{cost + gift} - R1"), ("the number of {U}s", f"R2 / {k}")], "c h g k"),
            c.ask("How much [more money|more] does {he} need?", "the money still needed", [f"{have} + {gift}", f"{cost + gift} - R1"], "c h g", "k"),
        ]  # fmt: skip
    else:
        asks = [
            c.ask("How many {U}s [does {he} need to save|will it take|must {he} wait]?", "the number of {U}s needed",
                  [f"{cost} - {have}", f"R1 / {k}"], "c h k", "g"),
            c.ask("How much [more money|more] does {he} need?", "the money still needed", f"{cost} - {have}", "c h", "g k"),
            c.ask("How much money will {he} have after {n} {U}s?", "the money after {n} {U}s", [f"{k} * {n}", f"R1 + {have}"], "h k", "g"),
        ]  # fmt: skip
    return World(c, facts, asks, extra=0.15)


def trip(r: Random) -> World:
    """A journey in two parts with different speeds."""
    s1, s2 = number(r, 3, 70), number(r, 3, 70)
    h1, h2 = number(r, 2, 8), number(r, 2, 8)
    unit = r.choice(("miles", "kilometers"))
    left = number(r, 5, 100)
    total = s1 * h1 + s2 * h2 + left
    c = teller(r, U=unit, s1=s1, s2=s2, h1=h1, h2=h2, t=total)
    c.set(ride=c("[drove|rode|traveled|cycled|went]"))
    facts = [
        c.fact("t", "[{A}'s trip is {t} {U} long|{A} has to travel {t} {U}]."),
        c.fact("one", "{A} {ride} for {h1} hours at {s1} {U} per hour."),
        c.fact("two", "Then {he} {ride} for {h2} hours at {s2} {U} per hour."),
    ]
    parts = [("the distance of the first part", f"{h1} * {s1}"), ("the distance of the second part", f"{h2} * {s2}")]
    asks = [
        c.plan("How [far|many {U}] did {A} {ride} [in total|altogether|in all]?".replace("did {A} {ride}", "did {A} go"),
               [*parts, ("the total distance", "R1 + R2")], "one two", "t"),
        c.plan("How many {U} are [left|still to go]?", [*parts, ("the total distance", "R1 + R2"), ("the distance left", f"{total} - R3")], "t one two"),
        c.ask("How far did {he} go in the first part?", "the distance of the first part", f"{h1} * {s1}", "one", "t"),
    ]  # fmt: skip
    return World(c, facts, asks, extra=0.4)


def factory(r: Random) -> World:
    """Production over hours and days, some of it faulty or sold."""
    thing = noun(r)
    k, h, d = number(r, 2, 40), number(r, 2, 10), number(r, 2, 7)
    x, p = number(r, 1, k * h * d - 1), number(r, 2, 12)
    c = teller(r, o=thing, k=k, h=h, d=d, x=min(x, 200))
    x = min(x, 200)
    c.set(p=c.cash(p))
    facts = [
        c.fact("k", "A [machine|factory|baker|worker|team] [makes|produces] {k} {o} [an|per|each|every] hour."),
        c.fact("h", "[It runs|The work goes on for|They work] {h} hours a day[ for {d} days|, {d} days a week]."),
        c.fact("x", "{x} of [the {o}|them] [are broken|are faulty|are thrown away|stay in the {P}]."),
        c.fact("p", "[The others are sold for {p} each|Each good one is sold for {p}]."),
    ]
    base = [("the number of hours", f"{h} * {d}"), ("the number of {o} made", f"R1 * {k}")]
    asks = [
        c.plan("How many {o} are [good|left]?", [*base, ("the number of {o} left", f"R2 - {x}")], "k h x", "p"),
        c.plan("How much money [is made|do they make|comes in]?", [*base, ("the number of {o} left", f"R2 - {x}"), ("the money made", f"R3 * {p}")], "k h x p"),
        c.ask("How many {o} are made [in total|in that time|altogether]?", "the number of {o} made", [f"{h} * {d}", f"R1 * {k}"], "k h", "x p"),
    ]  # fmt: skip
    return World(c, facts, asks, extra=0.0)


def tickets(r: Random) -> World:
    """Two ticket prices, or families at an event."""
    a, b = number(r, 2, 60), number(r, 2, 60)
    p, q = number(r, 3, 25), number(r, 2, 20)
    one, two = r.sample(("adults", "children", "students", "members", "seniors", "visitors"), 2)
    cost = number(r, 1, a * p)
    c = teller(r, a=a, b=b, x=one, y=two, X=words.singular(one), Y=words.singular(two))
    c.set(p=c.cash(p), q=c.cash(q), c=c.cash(cost))
    facts = [
        c.fact("p", "[Tickets for the [show|zoo|game|concert|museum] cost {p} for {x} and {q} for {y}|A ticket costs {p} for {x} and {q} for {y}|Each {X} pays {p} and each {Y} pays {q}]."),
        c.fact("a", "[{a} {x} and {b} {y} [came|bought tickets|went in]|There were {a} {x} and {b} {y}]."),
        c.fact("c", "[The event cost {c} to run|They spent {c} on the event]."),
    ]
    parts = [("the money from the {x}", f"{a} * {p}"), ("the money from the {y}", f"{b} * {q}")]
    asks = [
        c.plan("How much [money was collected|did they pay|money did they take in|was paid] [in total|altogether|in all]?",
               [*parts, ("the total money", "R1 + R2")], "p a", "c"),
        c.plan("How much money was left after that?", [*parts, ("the total money", "R1 + R2"), ("the money left", f"R3 - {cost}")], "p a c"),
        c.ask("How many people [came|were there] [in total|altogether]?", "the number of people", f"{a} + {b}", "a", "c"),
    ]  # fmt: skip
    return World(c, facts, asks, extra=0.4)


def rectangle(r: Random) -> World:
    """Area and perimeter, and their cost."""
    a, b = number(r, 2, 40), number(r, 2, 40)
    p = number(r, 2, 20)
    unit = r.choice(("feet", "meters", "yards"))
    thing = r.choice(("garden", "room", "field", "yard", "floor", "park", "playground"))
    c = teller(r, a=a, b=b, U=unit, o=thing, u=unit if unit != "feet" else "foot")
    c.set(p=c.cash(p), u=c.slots["u"].rstrip("s"))
    facts = [
        c.fact("ab", "[{A}'s {o} is {a} {U} long and {b} {U} wide|A rectangular {o} is {a} {U} by {b} {U}|The length of a {o} is {a} {U} and its width is {b} {U}]."),
        c.fact("fence", "[A fence costs {p} per {u}|Fencing is {p} a {u}]."),
        c.fact("cover", "[Grass|Carpet|Tiling] costs {p} per square {u}."),
    ]
    asks = [
        c.ask("What is the area of the {o}?", "the area of the {o}", f"{a} * {b}", "ab", "cover"),
        c.ask("What is the perimeter of the {o}?", "the perimeter of the {o}", [f"{a} + {b}", "R1 * 2"], "ab", "fence"),
        c.plan("How much does it cost to put a fence around it?", [("half of the perimeter", f"{a} + {b}"), ("the perimeter", "R1 * 2"), ("the cost of the fence", f"R2 * {p}")], "ab fence", "cover"),
        c.ask("How much does it cost to cover all of it?", "the cost to cover it", [f"{a} * {b}", f"R1 * {p}"], "ab cover", "fence"),
    ]  # fmt: skip
    return World(c, facts, asks, extra=0.0)


def average(r: Random) -> World:
    """Mean of three or four numbers."""
    n = r.choice((3, 3, 4))
    values = [number(r, 2, 98) for _ in range(n)]
    values[-1] += n - sum(values) % n
    what = r.choice(("scores", "points", "grades", "steps", "pages"))
    told = ", ".join(map(str, values[:-1])) + f" and {values[-1]}"
    c = teller(r, l=told, w=what)
    facts = [c.fact("l", "[{A}'s {w} were {l}|{A} wrote down the numbers {l}|On {his} last tests {A} got {l} {w}|In the games {A} had {l} {w}].")]
    total = " + ".join(map(str, values))
    asks = [
        c.ask("What is the average[| of these numbers]?", "the average", [total, f"R1 / {n}"], "l"),
        c.ask("What is the sum[| of these numbers]?", "the sum", total, "l"),
    ]
    return World(c, facts, asks)


def cents(r: Random) -> World:
    """Amounts with decimals: prices, lengths, weights."""
    (a, av), (b, bv) = _cents(r, 0, 30), _cents(r, 0, 30)
    n = number(r, 2, 9)
    first, second = (words.singular(thing) for thing in two_things(r))
    if av < bv:
        a, b, av, bv = b, a, bv, av
    if av == bv:
        b = "0.05"
    c = teller(r, o=first, z=second, n=n)
    if r.random() < 0.6:
        c.set(a=c.cash(a), b=c.cash(b))
        facts = [c.fact("ab", "[A {o} costs {a} and a {z} costs {b}|{A} bought a {o} for {a} and a {z} for {b}].")]
        asks = [
            c.ask("How much do they cost [together|altogether|in total]?", "the total cost", f"{a} + {b}", "ab"),
            c.ask("How much more does the {o} cost[| than the {z}]?", "the difference of the prices", f"{a} - {b}", "ab"),
            c.ask("How much do {n} such {o}s cost?".replace("{o}s", "things of the first kind"), "the cost of {n}", f"{a} * {n}", "ab"),
        ]  # fmt: skip
        asks.pop()
    else:
        unit = r.choice(("miles", "meters", "liters", "kilograms", "gallons", "pounds"))
        c.set(a=a, b=b, U=unit)
        facts = [
            c.fact("a", "{A} [ran|used|carried|measured|bought] {a} {U}[| of {o}s] [on {D1}|in the morning]."),
            c.fact("b", "[{he}|{B}] [ran|used|carried|measured|bought] {b} {U}[| of {o}s] [on {D2}|in the afternoon]."),
        ]
        asks = [
            c.ask("How many {U} is that [in total|altogether|in all]?", "the total {U}", f"{a} + {b}", "a b"),
            c.ask("How many more {U} was the first [amount|part] than the second?", "the difference in {U}", f"{a} - {b}", "a b"),
        ]
    return World(c, facts, asks)


def rest(r: Random) -> World:
    """A stock that is reduced several times before the rest is shared."""
    thing = noun(r)
    n, k = number(r, 2, 9), number(r, 2, 15)
    x, y = number(r, 1, 40), number(r, 1, 40)
    boxes, each = number(r, 2, 12), number(r, 2, 15)
    c = teller(r, o=thing, n=n, x=x, y=y, t=n * k + x + y, bx=boxes, e=each)
    by_box = r.random() < 0.5 and boxes * each > x + 1
    if by_box:
        x = number(r, 1, boxes * each - 1)
        remaining = boxes * each - x
        n = next((m for m in (5, 4, 3, 2, 6, 7) if remaining % m == 0), 1)
        if n == 1:
            by_box = False
            x = int(number(r, 1, 40))
            n = number(r, 2, 9)
    c.set(x=x, n=n, t=n * k + x + y, X=r.choice(words.CONTAINERS))
    c.set(s=words.singular(c.slots["X"]))
    share_ = "[{he} [shares|divides] the rest [equally|evenly] among {n} [friends|people|children]|The rest is [divided|split] evenly among {n} [friends|people|children]]."
    if by_box:
        facts = [
            c.fact("t", "{A} has {bx} {X} with {e} {o} each."),
            c.fact("x", "{he} [ate|sold|lost|gave away|used] {x} of [them|the {o}]."),
            c.fact("n", share_),
        ]
        asks = [
            c.plan("How many {o} does each of them get?", [("the number of all {o}", f"{boxes} * {each}"), ("the number of {o} left", f"R1 - {x}"), ("the number of {o} each one gets", f"R2 / {n}")], "t x n"),
        ]  # fmt: skip
    else:
        facts = [
            c.fact("t", "{A} has {t} {o}."),
            c.fact("x", "{he} [ate|sold|lost|gave away|used] {x} of [them|the {o}][| on {D1}]."),
            c.fact("y", "Then {he} [ate|sold|lost|gave away|used] {y} more[| on {D2}]."),
            c.fact("n", share_),
        ]
        total = n * k + x + y
        asks = [
            c.plan("How many {o} does each of them get?", [("the number of {o} after the first time", f"{total} - {x}"), ("the number of {o} left", f"R1 - {y}"), ("the number of {o} each one gets", f"R2 / {n}")], "t x y n"),
            c.ask("How many {o} [are left|does {A} have left|remain]?", "the number of {o} left", [f"{total} - {x}", f"R1 - {y}"], "t x y", "n"),
        ]  # fmt: skip
    return World(c, facts, asks)


WORLDS = (
    (shopping, 4), (wages, 3), (discount, 3), (fraction, 3), (chain, 4), (saving, 3), (trip, 2), (factory, 3),
    (tickets, 2), (rectangle, 2), (average, 1), (cents, 3), (rest, 3),
)  # fmt: skip
