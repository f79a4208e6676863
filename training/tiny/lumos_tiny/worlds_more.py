"""Short worlds in which several quantities of a story suggest a wrong calculation."""

from __future__ import annotations

from random import Random

from . import words
from .cast import kinds, noun, number, size, teller, two_things
from .story import World


def arranged(r: Random) -> World:
    """Two collections, each organised into its own groups."""
    first, second = two_things(r) if r.random() < 0.7 else kinds(r)[:2]
    n, k, m, j = (number(r, 2, r.choice((12, 30, 100))) for _ in range(4))
    box, other = r.choice(("groups", r.choice(words.CONTAINERS))), r.choice(words.CONTAINERS)
    if box == "groups":
        other = "groups"
    c = teller(r, o=first, z=second, n=n, m=m, a=n * k, b=m * j, k=k, j=j)
    c.set(X=box, x=words.singular(box), Y=other, y=words.singular(other))
    facts = [
        c.fact("ab", "[{A} owns {a} {o} and {b} {z}|On a long table {A} has laid out {a} {o} and {b} {z}|{A} [has|gathered] {a} {o} and {b} {z}]."),
        c.fact("nm", "[The {o} are [organized into|divided into|arranged in|put in] {n} {X} and the {z} [are [organized into|in]|into|in] {m} {Y}|"
               "{he} [packs|sorts|splits] the {o} evenly into {n} {X} and the {z} into {m} {Y}]."),
        c.fact("kj", "[Each {x} of {o} has {k} {o} and each {y} of {z} has {j} {z}|There are {k} {o} in each {x} of {o} and {j} {z} in each {y} of {z}]."),
    ]
    asks = [
        c.ask("[How many {o} does one {x} hold|How many {o} are in each {x}|How many {o} come to one {x}]?", "the size of each {x} of {o}",
              f"{n * k} / {n}", "ab nm", "kj"),
        c.ask("[How many {z} does one {y} hold|How many {z} come to one {y} of {z}]?", "the size of each {y} of {z}",
              f"{m * j} / {m}", "ab nm", "kj"),
        c.ask("How many {X} of {o} [are there|did {he} make|can {he} make]?", "the number of {X} of {o}", f"{n * k} / {k}", "ab kj", "nm"),
        c.ask("How many {Y} of {z} [are there|did {he} make|can {he} make]?", "the number of {Y} of {z}", f"{m * j} / {j}", "ab kj", "nm"),
        c.ask("How many {o} [are there|does {he} have] [in total|in all|altogether|]?", "the total number of {o}", f"{n} * {k}", "nm kj", "ab"),
        c.ask("How many {z} [are there|does {he} have] [in total|in all|altogether|]?", "the total number of {z}", f"{m} * {j}", "nm kj", "ab"),
        c.ask("How many {o} and {z} are there [in total|altogether]?", "the total number of {o} and {z}", f"{n * k} + {m * j}", "ab", "kj"),
    ]  # fmt: skip
    if n * k > m * j:
        asks.append(c.ask("How many more {o} than {z} [are there|does {he} have]?", "how many more {o} than {z} there are", f"{n * k} - {m * j}", "ab", "kj"))
    return World(c, facts, asks, extra=0.5)


def book(r: Random) -> World:
    """Pages, chapters and days of a book, and similar situations."""
    whole, parts, periods, past, base, unit = r.choice((
        ("book", "chapters", "days", "read", "read", "pages"), ("book", "chapters", "weeks", "read", "read", "pages"),
        ("puzzle book", "sections", "days", "solved", "solve", "puzzles"), ("test", "parts", "hours", "answered", "answer", "questions"),
        ("wall", "sections", "days", "painted", "paint", "bricks"), ("street", "blocks", "days", "visited", "visit", "houses"),
        ("field", "rows", "weeks", "watered", "water", "plants"), ("course", "units", "weeks", "took", "take", "lessons"),
        ("theater", "rows", "nights", "cleaned", "clean", "seats"), ("library", "shelves", "days", "sorted", "sort", "books"),
    ))  # fmt: skip
    p, q, d = number(r, 2, 40), number(r, 2, 20), number(r, 2, 20)
    total = p * q
    c = teller(r, W=whole, Cs=parts, C1=words.singular(parts), T=periods, T1=words.singular(periods), v=past, b=base, o=unit)
    by_day = r.random() < 0.5
    c.set(p=p, q=q, d=d, t=total)
    if by_day:
        chapters = number(r, 2, 40)
        c.set(c=chapters, d=q)
        facts = [
            c.fact("t", "[{A}'s {W} has {t} {o}|There are {t} {o} in a {W}|A {W} has {t} {o}]."),
            c.fact("c", "[It has|There are|It is made up of] {c} {Cs}."),
            c.fact("d", "[It took {A} {d} {T} to {b} all of it|{A} {v} all of them in {d} {T}|{A} finished it in {d} {T}]."),
            c.fact("p", "{A} {v} {p} {o} [every|each|per] {T1}."),
        ]
        asks = [
            c.ask("How many {o} did {A} {b} [each|per|every] {T1}?", "the number of {o} per {T1}", f"{total} / {q}", "t d", "p"),
            c.ask("How many {T} did {A} [need|take to finish]?", "the number of {T}", f"{total} / {p}", "t p", "d"),
            c.ask("How many {o} are in the {W}?", "the number of {o} in the {W}", f"{p} * {q}", "p d", "t"),
        ]
    else:
        c.set(c=q)
        facts = [
            c.fact("t", "[{A}'s {W} has {t} {o}|There are {t} {o} in a {W}|A {W} has {t} {o}]."),
            c.fact("c", "[It has|There are|It is made up of] {c} {Cs}[| of the same size|, all equally long]."),
            c.fact("d", "[It took {A} {d} {T} to {b} all of it|{A} {v} all of them in {d} {T}|{A} finished it in {d} {T}]."),
            c.fact("p", "Each {C1} has {p} {o}."),
        ]
        asks = [
            c.ask("How many {o} are in each {C1}?", "the number of {o} in each {C1}", f"{total} / {q}", "t c", "p"),
            c.ask("How many {o} does [each|one] {C1} have?", "the number of {o} in each {C1}", f"{total} / {q}", "t c", "p"),
            c.ask("How many {Cs} [are there|does it have]?", "the number of {Cs}", f"{total} / {p}", "t p", "c"),
            c.ask("How many {o} are there [in total|altogether|in the {W}]?", "the number of {o} in the {W}", f"{p} * {q}", "p c", "t"),
        ]
        if q % d == 0 and q > d:
            asks.append(c.ask("How many {Cs} did {A} {b} [each|per|every] {T1}?", "the number of {Cs} per {T1}", f"{q} / {d}", "c d"))
    return World(c, facts, asks, extra=0.5)


def more_then_change(r: Random) -> World:
    """One actor has more than another, then one of them loses or gets some."""
    thing = noun(r)
    top = size(r)
    d, x = number(r, 1, top), number(r, 1, top)
    b = x + number(r, 1, top)
    a = b + d
    lose = r.random() < 0.6
    after = b - x if lose else b + x
    c = teller(r, o=thing, d=d, x=x, b=b, a=a, e=after)
    c.set(v=c("[lost {x} [of {his} {o}|{o}]|gave away {x} {o}|sold {x} {o}|dropped {x} {o}]" if lose else "[found {x} {o}|bought {x} more {o}|got {x} {o}|won {x} {o}]"))
    c.set(w=c("[lost some of them|gave some away]" if lose else "[found some more|bought some more]"))
    c.set(q="lose" if lose else "get", l="left" if lose else "in the end")
    facts = [
        c.fact("d", "[{A} had {d} more {o} than {B}|{B} had {d} [fewer|less] {o} than {A}]."),
        c.fact("x", "[Then|Later|] {B} {v}[| at the {P}| on {D1}].", "Then {B} {w}."),
        c.fact("a", "{A} had {a} {o}."),
        c.fact("b", "{B} had {b} {o}[| at first]."),
        c.fact("e", "Now {B} has {e} {o}."),
    ]
    sign, undo = ("-", "+") if lose else ("+", "-")
    asks = [
        c.ask("How many {o} did {B} have [at first|before|initially|in the beginning]?", "the number of {o} {B} had at first", f"{a} - {d}", "d a", "b e"),
        c.ask("How many {o} does {B} have now?", "the number of {o} {B} has now", [f"{a} - {d}", f"R1 {sign} {x}"], "d a x", "b e"),
        c.ask("How many {o} does {B} have now?", "the number of {o} {B} has now", f"{b} {sign} {x}", "b x", "e"),
        c.ask("How many {o} did {A} have?", "the number of {o} {A} had", f"{b} + {d}", "b d", "a e"),
        c.ask("How many {o} did {B} have [at first|before that]?", "the number of {o} {B} had at first", f"{after} {undo} {x}", "e x", "a b"),
        c.ask("How many {o} did {B} {q}?", "the number of {o} {B} {q}", f"{b} - {after}" if lose else f"{after} - {b}", "b e", "x a"),
    ]  # fmt: skip
    if lose:
        asks.append(c.ask("How many more {o} did {A} have than {B} [then|after that]?", "how many more {o} {A} had after that", f"{d} + {x}", "d x", "a b e"))
    return World(c, facts, asks, extra=0.3, shuffle=False)


def boughten(r: Random) -> World:
    """Things are made, bought and sold, and the events are compared."""
    thing = noun(r)
    top = size(r)
    x, y = number(r, 1, top), number(r, 1, top)
    start = max(x, y) + number(r, 1, top)
    c = teller(r, o=thing, s=start, x=x, y=y, e=start - x + y, f=start - x)
    who = r.choice(("{A}", "{A}", "A baker", "A farmer", "The shop", "The store", "A [chef|painter|collector]"))
    made = r.choice((("made", "make"), ("had", "have"), ("baked", "bake"), ("collected", "collect"), ("grew", "grow")))
    sold = r.choice((("sold", "sell"), ("gave away", "give away"), ("threw away", "throw away"), ("used", "use"), ("returned", "return"), ("lost", "lose")))
    got = r.choice((("bought", "buy"), ("found", "find"), ("got", "get"), ("received", "receive"), ("made", "make"), ("picked", "pick")))
    c.set(W=c(who), m=made[0], v=sold[0], vb=sold[1], g=got[0], gb=got[1])
    facts = [
        c.fact("s", "{W} {m} {s} {o}.", "{W} {m} some {o}."),
        c.fact("x", "[Then {W}|{W}|{W} then] {v} {x} [of them|{o}].", "{W} {v} some."),
        c.fact("y", "[Then {W}|{W}|{W} also] {g} {y} [new|more|other] {o}.", "{W} {g} some more."),
        c.fact("f", "{W} still had {f} {o} after that."),
    ]
    if facts[1].text and r.random() < 0.3:
        facts[1:3] = [c.fact("x", "{W} {v} {x} {o}.", "{W} {v} some."), c.fact("y", "{W} {g} {y} {o}.", "{W} {g} some.")]
    asks = [
        c.ask("How many {o} [does {W} still have|does {W} have now|are there now]?", "the number of {o} {W} has now",
              [f"{start} - {x}", f"R1 + {y}"], "s x y", "f"),
        c.ask("How many {o} [are left|remained]?", "the number of {o} left", f"{start} - {x}", "s x", "f y"),
        c.ask("How many {o} did {W} {vb}?", "the number of {o} {W} {v}", f"{start} - {start - x}", "s f", "x y"),
        c.ask("How many {o} did {W} have [at first|to begin with]?", "the number of {o} at first", f"{x} + {start - x}", "x f", "s y"),
    ]  # fmt: skip
    if x > y:
        asks.append(c.ask("How many more {o} did {W} {vb} than {gb}?", "how many more {o} {W} {v} than {g}", f"{x} - {y}", "x y", "f"))
    elif y > x:
        asks.append(c.ask("How many more {o} did {W} {gb} than {vb}?", "how many more {o} {W} {g} than {v}", f"{y} - {x}", "x y", "f"))
    if made[1] != "have":
        asks.append(c.ask("How many more {o} did {W} " + made[1] + " than the ones {W} {v}?", "how many more {o} {W} {m} than {v}", f"{start} - {x}", "s x", "f"))
    return World(c, facts, asks, extra=0.6)


def levels(r: Random) -> World:
    """Things in boxes in rooms: products of three and their inverses."""
    thing = noun(r)
    inner, outer = r.sample(words.CONTAINERS, 2)
    if r.random() < 0.4:
        inner, outer = r.choice((("houses", "blocks"), ("rows", "rooms"), ("students", "classes"), ("shelves", "rooms"), ("children", "families"),
                                 ("players", "teams"), ("tables", "halls"), ("bags", "trucks"), ("trays", "ovens"), ("days", "weeks")))  # fmt: skip
    n, m, k = number(r, 2, 15), number(r, 2, 15), number(r, 2, 20)
    c = teller(r, o=thing, I=inner, i=words.singular(inner), O=outer, u=words.singular(outer), n=n, m=m, k=k, t=n * m * k, nm=n * m)
    facts = [
        c.fact("n", "There are {n} {O}."),
        c.fact("m", "[Each|Every] {u} has {m} {I}."),
        c.fact("k", "[Each|Every] {i} [has|gets|needs] {k} {o}."),
        c.fact("t", "There are {t} {o} in total."),
        c.fact("nm", "There are {nm} {I} in total."),
    ]
    asks = [
        c.ask("How many {o} are [there|needed] [in total|altogether|in all]?", "the total number of {o}", [f"{n} * {m}", f"R1 * {k}"], "n m k", "t nm"),
        c.ask("How many {I} are there [in total|altogether|in all]?", "the total number of {I}", f"{n} * {m}", "n m", "t nm"),
        c.ask("How many {o} [are in|does] [each|one] {u}[ have|]?".replace("[are in|does]", "are in").replace("[ have|]", ""), "the number of {o} in each {u}", f"{m} * {k}", "m k", "t nm"),
        c.ask("How many {o} does each {i} [get|have]?", "the number of {o} of each {i}", [f"{n} * {m}", f"{n * m * k} / R1"], "n m t", "k nm"),
        c.ask("How many {o} does each {i} [get|have]?", "the number of {o} of each {i}", f"{n * m * k} / {n * m}", "t nm", "n m k"),
        c.ask("How many {I} does each {u} have?", "the number of {I} in each {u}", f"{n * m} / {n}", "n nm", "m t"),
        c.ask("How many {o} are [there|needed] [in total|altogether|in all]?", "the total number of {o}", f"{n * m} * {k}", "nm k", "t n m"),
    ]  # fmt: skip
    return World(c, facts, asks, extra=0.3, shuffle=r.random() < 0.3)


def gifts(r: Random) -> World:
    """Money or things from two givers, partly spent on two things."""
    top = size(r)
    a, b = number(r, 1, top), number(r, 1, top)
    if a == b:
        a += 1
    x = number(r, 1, max(1, a + b - 2))
    y = number(r, 1, max(1, a + b - x))
    money = r.random() < 0.6
    thing = "dollars" if money else r.choice(("tickets", "points", "coins", "tokens", "stickers", "stars"))
    c = teller(r, o=thing, a=a, b=b, x=x, y=y, e=a + b - x, p=words.singular(noun(r)), q=words.singular(noun(r)), s=x + y)
    tell = c.cash if money else (lambda value: f"{value} {thing}")
    c.set(ta=tell(a), tb=tell(b), tx=tell(x), ty=tell(y), te=tell(a + b - x), much="much money" if money else "many {o}".format(o=thing))
    one, two = r.sample(("mom", "dad", "uncle", "aunt", "grandmother", "brother", "sister", "teacher", "friend"), 2)
    c.set(one=c("{his} " + one), two=c("{his} " + two))
    get = r.random() < 0.6
    facts = [
        c.fact("ab", "[{A} got {ta} from {one} and {tb} from {two}|{A}'s " + one + " gave {him} {ta} and {his} " + two + " gave {him} {tb}]."
               if get else "[{A} had {ta}. Then {he} [got|earned|won|found] {tb} more|{A} had {ta} and then [got|earned|won|found] another {tb}]."),
        c.fact("x", "[{he} spent {tx} on a {p}|{he} used {tx} to buy a {p}|{he} paid {tx} for a {p}].", "{he} bought a {p}."),
        c.fact("y", "[{he} spent {ty} on a {q}|{he} used {ty} to buy a {q}]."),
        c.fact("e", "{he} had {te} left."),
    ]
    asks = [
        c.ask("How {much} did {A} [have|get] [in total|altogether] [|before spending]?".replace("[have|get]", "get" if get else "have"),
              "what {A} had in total", f"{a} + {b}", "ab", "e"),
        c.ask("How {much} does {A} have [left|now]?", "what {A} has left", [f"{a} + {b}", f"R1 - {x}"], "ab x", "e y"),
        c.ask("How {much} did {A} spend [in total|altogether|in all]?", "what {A} spent in total", f"{x} + {y}", "x y", "e"),
    ]  # fmt: skip
    if get:
        hi, lo = ("{one}", "{two}") if a > b else ("{two}", "{one}")
        more = "more money" if money else "more {o}"
        asks.append(c.ask(f"How much {more} did {hi} give {{him}} than {lo}?".replace("much more {o}", "many more {o}"), "how much more " + hi + " gave",
                          f"{max(a, b)} - {min(a, b)}", "ab", "e"))  # fmt: skip
    if x != y:
        hi, lo = ("p", "q") if x > y else ("q", "p")
        asks.append(c.ask("How much more did {A} spend on the {" + hi + "} than on the {" + lo + "}?", "how much more the {" + hi + "} cost",
                          f"{max(x, y)} - {min(x, y)}", "x y", "e"))  # fmt: skip
    return World(c, facts, asks, extra=0.4)


def sum_times(r: Random) -> World:
    """Two counts with the same price, weight or size, or a reduced price."""
    thing = noun(r)
    n, m, k = number(r, 1, 20), number(r, 1, 20), number(r, 2, 30)
    d = number(r, 1, k - 1)
    if n == m:
        n += 1
    first, second = (f"{w} {thing}" for w in r.sample(words.COLOURS + words.QUALITIES, 2))
    c = teller(r, o=thing, O=words.singular(thing), n=n, m=m, k=k, g=first, h=second)
    c.set(ck=c.cash(k), cd=c.cash(d), ct=c.cash(k * n))
    if r.random() < 0.55:
        unit = r.choice(("{ck}", "{k} tickets", "{k} points", "{k} minutes", "{k} grams"))
        c.set(u=c(unit))
        verb = "cost" if unit in ("{ck}", "{k} tickets") else "take" if "min" in unit else "weigh" if "gram" in unit else "bring"
        much = {"{ck}": "much", "{k} tickets": "many tickets", "{k} points": "many points", "{k} minutes": "many minutes", "{k} grams": "many grams"}[unit]
        style = r.random() < 0.5
        facts = [
            c.fact("nm", "{A} [bought|got|made|packed] {n} {g} and {m} {h}." if style
                   else "{A} [bought|got|made|packed] {n} {o} [on {D1}|in {M}] and {m} {o} [on {D2}|in {N}]."),
            c.fact("k", f"[Each|Every] {{O}} {verb}s {{u}}."),
        ]
        asks = [
            c.ask(f"How {much} do they {verb} [in total|altogether|in all]?", "the total", [f"{n} + {m}", f"R1 * {k}"], "nm k"),
            c.ask("How many {o} are there [in total|altogether|in all]?", "the total number of {o}", f"{n} + {m}", "nm"),
        ]
        if style:
            asks.append(c.ask(f"How {much} do the {{g}} {verb}?", f"what the {{g}} {verb}", f"{n} * {k}", "nm k"))
            asks.append(c.ask(f"How {much} do the {{h}} {verb}?", f"what the {{h}} {verb}", f"{m} * {k}", "nm k"))
        if n > m:
            asks.append(c.ask("How many more " + ("{g} than {h}" if style else "{o} were there the first time than the second time") + "[| are there]?".replace("[| are there]", ""),
                              "the difference of the counts", f"{n} - {m}", "nm"))  # fmt: skip
            asks.append(c.ask(f"How {much} more do the " + ("{g}" if style else "first {o}") + f" {verb} than the " + ("{h}" if style else "second ones") + "?",
                              "the difference", [f"{n} - {m}", f"R1 * {k}"], "nm k"))  # fmt: skip
    else:
        facts = [
            c.fact("k", "[Each|A|One] {O} costs {ck}."),
            c.fact("d", "[There is a discount of {cd} on each {O}|The price of each {O} is reduced by {cd}|The store takes {cd} off each {O}]."),
            c.fact("n", "{A} [buys|bought] {n} {o}."),
        ]
        asks = [
            c.ask("How much [does|will] [one|each|a] {O} cost [now|with the discount]?".replace("[does|will]", "does"), "the reduced price of one {O}", f"{k} - {d}", "k d"),
            c.ask("How much [do you have to pay|does {A} have to pay] for each {O}?", "the reduced price of one {O}", f"{k} - {d}", "k d"),
            c.ask("How much does {A} pay [in total|altogether|in all]?", "the total price", [f"{k} - {d}", f"R1 * {n}"], "k d n"),
            c.ask("How much did {A} pay [in total|altogether|for the {o}]?", "the total price", f"{k} * {n}", "k n", "d"),
            c.ask("How much money [does {A} save|is saved] [in total|altogether]?", "the money saved in total", f"{n} * {d}", "d n"),
        ]  # fmt: skip
    return World(c, facts, asks, extra=0.4)


def on_off(r: Random) -> World:
    """Arrivals and departures of which only the initial and final amounts are known."""
    people = noun(r, words.PEOPLE)
    top = size(r)
    off, d = number(r, 1, top), number(r, 1, top)
    on = off + d
    start = off + number(r, 1, top)
    up = r.random() < 0.5
    if not up:
        off, on = on, off
        start += d
    end = start - off + on
    go, come, leave, enter = r.choice((("got off", "got on", "get off", "get on"), ("left", "came", "leave", "come"), ("went out", "came in", "go out", "come in"),
                                      ("moved away", "moved in", "move away", "move in"), ("left", "arrived", "leave", "arrive")))  # fmt: skip
    where = r.choice(("on the bus", "on the train", "in the {P}", "at the {P}", "on the boat", "in the room"))
    c = teller(r, o=people, s=start, e=end, x=off, y=on, d=d, go=go, come=come, leave=leave, enter=enter)
    c.set(L=c(where))
    facts = [
        c.fact("s", "There were {s} {o} {L}."),
        c.fact("xy", "[At the [next|first] stop|Then|After an hour|Later|In the afternoon] {x} {o} {go} and {y} [{o} |more ]{come}.".replace("[{o} |more ]", "more "),
               "[At the next stop|Then|Later] some {o} {go} and some {come}."),
        c.fact("x", "[Then|At the next stop|Later] {x} {o} {go} and some more {come}."),
        c.fact("y", "[Then|At the next stop|Later] {y} more {o} {come} and some {go}."),
        c.fact("e", "[Now there are|In the end there were|After that there were] {e} {o} {L}."),
    ]
    mored, lessd = (come, go) if up else (go, come)
    asks = [
        c.ask("How many {o} are {L} [now|in the end]?", "the number of {o} {L} now", [f"{start} - {off}", f"R1 + {on}"], "s xy", "x y e"),
        c.ask(f"How many more {{o}} {mored} than [those who|those that] {lessd}?", f"how many more {{o}} {mored} than {lessd}",
              f"{on} - {off}" if up else f"{off} - {on}", "xy", "x y e"),
        c.ask(f"How many more {{o}} {mored} than {lessd}?", f"how many more {{o}} {mored} than {lessd}",
              f"{end} - {start}" if up else f"{start} - {end}", "s e", "xy x y"),
        c.ask("How many {o} did {enter}?" if r.random() < 0.5 else "How many {o} {come}?", "the number of {o} that {come}",
              [f"{start} - {off}", f"{end} - R1"], "s x e", "xy y"),
        c.ask("How many {o} {go}?", "the number of {o} that {go}", [f"{start} + {on}", f"R1 - {end}"], "s y e", "xy x"),
        c.ask("How many {o} were {L} [at first|before|initially]?", "the number of {o} {L} at first", [f"{end} + {off}", f"R1 - {on}"], "xy e", "s x y"),
    ]  # fmt: skip
    return World(c, facts, asks, extra=0.0)


WORLDS = (
    (arranged, 4), (book, 3), (more_then_change, 3), (boughten, 3), (levels, 2), (gifts, 3), (sum_times, 3), (on_off, 2),
)  # fmt: skip
