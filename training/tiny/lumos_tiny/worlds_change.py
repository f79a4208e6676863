"""Short worlds about amounts that change, are compared or are put together."""

from __future__ import annotations

from random import Random

from . import words
from .cast import kinds, noun, number, size, teller, two_things
from .story import World

LOSS = (
    ("gave {x} {k} to {B}", "gave to {B}", "gave some {k} to {B}"),
    ("gave {B} {x} of {his} {k}", "gave to {B}", "gave {B} some of {his} {k}"),
    ("gave away {x} {k}", "gave away", "gave away some {k}"),
    ("lost {x} {k}", "lost", "lost some {k}"),
    ("lost {x} of them", "lost", "lost some of them"),
    ("sold {x} {k}", "sold", "sold some {k}"),
    ("sold {x} of the {k}", "sold", "sold some of the {k}"),
    ("used {x} {k}", "used", "used some {k}"),
    ("threw away {x} {k}", "threw away", "threw some {k} away"),
    ("donated {x} {k} to the {P}", "donate", "donated some {k}"),
    ("broke {x} {k}", "broke", "broke some of the {k}"),
    ("traded away {x} {k}", "traded away", "traded some {k}"),
    ("put {x} {k} back", "put back", "put some {k} back"),
    ("took {x} {k} out", "took out", "took some {k} out"),
    ("sent {x} {k} to {B}", "sent to {B}", "sent some {k} to {B}"),
    ("removed {x} of the {k}", "removed", "removed some of the {k}"),
    ("returned {x} {k}", "returned", "returned some {k}"),
    ("shared {x} {k} with {B}", "shared with {B}", "shared some {k} with {B}"),
    ("misplaced {x} {k}", "misplaced", "misplaced some {k}"),
    ("left {x} {k} at the {Q}", "left at the {Q}", "left some {k} at the {Q}"),
)  # fmt: skip
EAT = (
    ("ate {x} {k}", "ate", "ate some {k}"),
    ("ate {x} of them", "ate", "ate some of them"),
    ("ate {x} of the {k}", "ate", "ate some of the {k}"),
)  # fmt: skip
GAIN = (
    ("bought {x} more {k}", "bought", "bought some more {k}"),
    ("bought {x} {k}", "bought", "bought some {k}"),
    ("got {x} {k} from {B}", "got from {B}", "got some {k} from {B}"),
    ("received {x} {k} from {B}", "received from {B}", "received some {k} from {B}"),
    ("found {x} {k}", "found", "found some {k}"),
    ("found another {x} {k}", "found", "found some {k}"),
    ("collected {x} more {k}", "collected", "collected some more {k}"),
    ("picked up {x} more {k}", "picked up", "picked up more {k}"),
    ("won {x} {k}", "won", "won some {k}"),
    ("made {x} more {k}", "made", "made some more {k}"),
    ("was given {x} {k} by {B}", "was given", "was given some {k} by {B}"),
    ("added {x} {k}", "added", "added some {k}"),
    ("borrowed {x} {k} from {B}", "borrowed", "borrowed some {k} from {B}"),
)  # fmt: skip
HAD = "[had|owned|started with|had|initially had|originally had|had a collection of|first had|[brought|packed]]"
NEED = {
    "gave": "give", "lost": "lose", "sold": "sell", "used": "use", "threw": "throw", "donate": "donate",
    "broke": "break", "traded": "trade", "put": "put", "took": "take", "sent": "send", "removed": "remove",
    "returned": "return", "shared": "share", "misplaced": "misplace", "left": "leave", "ate": "eat",
    "bought": "buy", "got": "get", "received": "receive", "found": "find", "collected": "collect",
    "picked": "pick", "won": "win", "made": "make", "added": "add", "borrowed": "borrow", "saw": "see",
    "caught": "catch", "baked": "bake", "read": "read", "scored": "score", "drew": "draw", "planted": "plant",
    "sold ": "sell", "painted": "paint", "washed": "wash", "counted": "count", "ran": "run", "walked": "walk",
    "built": "build", "grew": "grow", "wrote": "write", "earned": "earn", "solved": "solve", "took ": "take",
    "finished": "finish", "watched": "watch", "visited": "visit", "typed": "type", "fixed": "fix",
    "gathered": "gather", "harvested": "harvest", "delivered": "deliver", "cleaned": "clean", "spent": "spend",
    "rode": "ride", "folded": "fold", "played": "play", "picked ": "pick", "answered": "answer",
    "recycled": "recycle", "packed": "pack", "served": "serve", "carved": "carve", "took part in": "take part in",
}  # fmt: skip


def did(past: str) -> str:
    """Returns the form after `did`, such as `give to Tom` for `gave to Tom`."""
    if past == "was given":
        return "receive"
    if past == "donate":
        return past
    head, _, tail = past.partition(" ")
    return f"{NEED[head]} {tail}".strip()


def ledger(r: Random) -> World:
    """An amount that increases or decreases once or twice."""
    food = r.random() < 0.35
    thing = noun(r, words.FOOD if food else words.TOYS + words.STATIONERY)
    top = size(r)
    down = r.random() < 0.6
    change = number(r, 1, top)
    start = number(r, change + 1, top + change) if down else number(r, 1, top)
    event = r.choice(EAT if food and r.random() < 0.6 else LOSS) if down else r.choice(GAIN)
    end = start - change if down else start + change
    c = teller(r, s=start, x=change, e=end, o=thing, k=thing, S=words.singular(thing))
    other = noun(r)
    c.set(Z=other, u=number(r, 1, top), w=number(r, 1, top))
    past = c(event[1])
    c.set(past=past if past != "donate" else "donated", did=did(past))
    sign, undo = ("-", "+") if down else ("+", "-")
    facts = [
        c.fact("start", "{A} " + HAD + " {s} {o}.", "{A} had some {o}."),
        c.fact("other", "[{he} also had|There were|{B} had] {u} {Z}."),
        c.fact("event", "[{he}|{A}|Then {he}|Later {he}|After that {he}] " + event[0] + ".",
               "[{he}|{A}|Then {he}|Later {he}] " + event[2] + "."),
        c.fact("other2", "[{he}|{B}] [bought|lost|got|sold|found] {w} {Z}."),
        c.fact("end", "[Now {he} has|{he} now has|Now {A} has|At the end {he} had|In the end {A} had] {e} {o}[| left]."
               if down else "[Now {he} has|{he} now has|{A} has now|At the end {he} had] {e} {o}[| in total| altogether]."),
    ]
    final = (
        "How many {o} [does {A} have left|does {A} have now|did {A} have left|are left|does {he} still have|remain|"
        "does {A} have|did {he} end up with]?"
        if down
        else "How many {o} [does {A} have now|does {A} have in all|did {A} have in total|does {he} have altogether|"
        "does {A} have|does {he} now have|did {he} end up with]?"
    )
    asks = [
        c.ask(final, "the number of {o} {A} has " + ("left" if down else "in the end"), f"{start} {sign} {change}",
              "start event", "end"),
        c.ask("How many {o} did {A} [have|start with|have at first|have in the beginning|have initially|have before|"
              "own originally]?", "the number of {o} {A} had at first", f"{end} {undo} {change}", "event end", "start"),
        c.ask("How many {o} did [{A}|{he}] {did}?", "the number of {o} {A} {past}",
              f"{start} - {end}" if down else f"{end} - {start}", "start end", "event"),
    ]  # fmt: skip
    if past == "was given":
        asks.pop()
    second = number(r, 1, end) if r.random() < 0.5 else 0
    if second and second < end:
        gain = r.random() < 0.5
        again = r.choice(GAIN[:5] if gain else (EAT if food else LOSS[2:6]))
        c.set(x=second)
        facts.insert(4, c.fact("more", "[Then {he}|After that {he}|Later {A}|The next day {he}] " + again[0] + "."))
        if down == gain or r.random() < 0.6:
            sign2 = "+" if gain else "-"
            facts.pop()
            asks[1:] = []
            asks[0] = c.ask(
                "How many {o} [does {A} have now|does {he} have|did {he} have in the end|does {A} have at the end]?",
                "the number of {o} {A} has in the end",
                [f"{start} {sign} {change}", f"R1 {sign2} {second}"],
                "start event more",
            )
        else:
            facts.pop(4)
    lead = ["{A} likes to [collect|count|keep] {o}.", "{A} has many {o}.", "{A} was [cleaning|tidying] {his} room."]
    return World(c, facts, asks, lead=lead, extra=0.25)


def two_kinds(r: Random) -> World:
    """Two kinds of things, each partly used up."""
    first, second, thing = kinds(r) if r.random() < 0.65 else (*two_things(r), "things")
    top = size(r)
    x, y = number(r, 1, top), number(r, 1, top)
    a, b = number(r, x + 1, x + top), number(r, y + 1, y + top)
    if x == y or a == b:
        a, x = a + 3, x + 2
    c = teller(r, a=a, b=b, x=x, y=y, k=first, l=second, o=thing, la=a - x, lb=b - y)
    verb, base, done = r.choice((
        ("ate", "eat", "eaten"), ("used", "use", "used"), ("sold", "sell", "sold"), ("lost", "lose", "lost"),
        ("gave away", "give away", "given away"), ("gave {B}", "give to {B}", "given to {B}"),
        ("threw away", "throw away", "thrown away"), ("donated", "donate", "donated"), ("broke", "break", "broken"),
    ))  # fmt: skip
    c.set(v=c(verb), b0=c(base), done=c(done))
    told = r.random() < 0.5
    facts = [
        c.fact("a b", "{A} [had|baked|bought|owned|brought|made] {a} {k} and {b} {l}.")
        if told
        else c.fact("a", "{A} [had|bought|owned] {a} {k}.", "{A} had some {k}."),
        c.fact("b", "[{he}|{A}] also [had|bought] {b} {l}.", "{he} also had some {l}."),
        c.fact("x", "[{he}|{A}|Then {he}] {v} {x} {k}.", "{he} {v} some {k}."),
        c.fact("y", "[{he}|{A}|Then {he}] {v} {y} {l}.", "{he} {v} some {l}."),
        c.fact("la", "{he} had {la} {k} left."),
        c.fact("lb", "There were {lb} {l} left."),
    ]
    both = "a b" if told else "a"
    if told:
        facts.pop(1)
    if r.random() < 0.5:
        facts[-4:-2] = [c.fact("x y", "[{he}|{A}|Then {he}] {v} {x} {k} and {y} {l}.")]
    keys = {key: fact.key for fact in facts for key in fact.key.split()}
    facts = [type(f)(f.key.replace(" ", "_"), f.text, f.vague) for f in facts]
    keys = {key: value.replace(" ", "_") for key, value in keys.items()}
    big = (a, b, "k", "l") if a > b else (b, a, "l", "k")
    use = (x, y, "k", "l") if x > y else (y, x, "l", "k")
    left = (a - x, b - y)
    asks = [
        c.ask("How many {k} [did {A} have left|does {A} have left|are left|does {he} still have|remain]?",
              "the number of {k} left", f"{a} - {x}", "a x", "la"),
        c.ask("How many {l} [did {A} have left|does {A} have left|are left|does {he} still have|remain]?",
              "the number of {l} left", f"{b} - {y}", "b y", "lb"),
        c.ask("How many {o} did {A} have [in total|altogether|in all] [|at first|in the beginning]?" if thing != "things"
              else "How many {k} and {l} did {A} have [in total|altogether|in all] [|at first]?",
              "the total number of {o} {A} had", f"{a} + {b}", "a b"),
        c.ask("How many {o} did {A} {b0} [in total|altogether|in all|]?" if thing != "things"
              else "How many {k} and {l} did {A} {b0} [in total|altogether|in all]?",
              "the total number of {o} {done}", f"{x} + {y}", "x y"),
        c.ask("How many more {" + big[2] + "} than {" + big[3] + "} did {A} have[| at first| initially]?",
              "how many more {" + big[2] + "} than {" + big[3] + "} there were", f"{big[0]} - {big[1]}", "a b"),
        c.ask("How many more {" + use[2] + "} than {" + use[3] + "} did {A} {b0}?",
              "how many more {" + use[2] + "} than {" + use[3] + "} were {done}", f"{use[0]} - {use[1]}", "x y"),
        c.ask("How many fewer {" + use[3] + "} than {" + use[2] + "} did {he} {b0}?",
              "how many fewer {" + use[3] + "} than {" + use[2] + "} were {done}", f"{use[0]} - {use[1]}", "x y"),
        c.ask("How many {k} did {A} have [at first|initially|before|in the beginning]?", "the number of {k} at first",
              f"{left[0]} + {x}", "x la", both.replace(" ", "_") if both == "a" else "a"),
    ]  # fmt: skip
    if told:
        asks.pop()
    asks = [type(q)(q.text, q.steps, " ".join(keys.get(k, k) for k in q.need.split()), q.hide) for q in asks]
    return World(c, facts, asks, extra=0.5, lead=["{A} likes {k}.", "{A} went to the {P}."])


ACTS = (
    ("collected", "collecting"), ("picked", "picking"), ("caught", "catching"), ("baked", "baking"),
    ("found", "finding"), ("bought", "buying"), ("sold", "selling"), ("counted", "counting"), ("made", "making"),
    ("saw", "seeing"), ("drew", "drawing"), ("planted", "planting"), ("painted", "painting"),
    ("washed", "washing"), ("read", "reading"), ("gathered", "gathering"), ("harvested", "harvesting"),
    ("delivered", "delivering"), ("cleaned", "cleaning"), ("won", "winning"), ("packed", "packing"),
    ("recycled", "recycling"), ("ate", "eating"), ("fixed", "fixing"), ("folded", "folding"),
)  # fmt: skip
SPORT = (
    ("did", "do", "push-ups|sit-ups|jumping jacks|squats|pull-ups|cartwheels|crunches"), ("ran", "run", "laps|miles|blocks|kilometers"),
    ("scored", "score", "points|goals|baskets|runs"), ("swam", "swim", "laps|miles|meters"), ("walked", "walk", "miles|blocks|steps|kilometers"),
    ("solved", "solve", "problems|puzzles|riddles|questions"), ("read", "read", "pages|books|chapters|stories"),
    ("biked", "bike", "miles|kilometers"), ("played", "play", "games|matches|songs|rounds"), ("jumped", "jump", "inches|feet|centimeters"),
    ("drove", "drive", "miles|kilometers"), ("wrote", "write", "letters|pages|poems|words|cards|essays"),
    ("earned", "earn", "points|dollars|badges|stars"), ("watched", "watch", "movies|shows|videos|games"),
)  # fmt: skip


def _act(r: Random) -> tuple[str, str, str]:
    if r.random() < 0.45:
        past, base, things = r.choice(SPORT)
        return past, base, r.choice(things.split("|"))
    past = r.choice(ACTS)[0]
    return past, NEED[past], noun(r)


def compare(r: Random) -> World:
    """Two or three actors, one of them described relative to another."""
    past, base, thing = _act(r)
    top = size(r)
    d, e = number(r, 1, top), number(r, 1, top)
    low = number(r, 1, top) + (e if r.random() < 0.5 else 0)
    high = low + d
    c = teller(r, o=thing, v=past, b=base, lo=low, hi=high, d=d, e=e)
    have = r.random() < 0.4
    if have:
        c.set(v="has", b="have")
    verb = "{v} " if not have else "has "
    does = "does" if have else "did"
    up = r.random() < 0.5
    # B is described relative to A.
    known, asked = (low, high) if up else (high, low)
    c.set(a=known, t=known + asked)
    word, sign, inverse = ("more", "+", "-") if up else ("[fewer|less]", "-", "+")
    reverse = "[fewer|less]" if up else "more"
    facts = [
        c.fact("a", "{A} " + verb + "{a} {o}.", None),
        c.fact("b", "{B} " + verb + f"{c.number(asked)} " + "{o}."),
        r.choice((
            c.fact("d", "{B} " + verb + "{d} " + word + " {o} than {A}[| did| does]."),
            c.fact("d", "{A} " + verb + "{d} " + reverse + " {o} than {B}."),
            c.fact("d", "{B} " + verb + "{d} " + word + " than {A}."),
        )),
    ]  # fmt: skip
    more = "{B}|{A}" if up else "{A}|{B}"
    winner, loser = more.split("|")
    asks = [
        c.ask(f"How many {{o}} {does} {{B}} {{b}}?", "the number of {o} {B} {v}", f"{known} {sign} {d}", "a d", "b"),
        c.ask(f"How many {{o}} {does} {{A}} {{b}}?", "the number of {o} {A} {v}", f"{asked} {inverse} {d}", "b d", "a"),
        c.ask(f"How many more {{o}} {does} {winner} {{b}} than {loser}?", f"how many more {{o}} {winner} {{v}} than {loser}",
              f"{high} - {low}", "a b", "d"),
        c.ask(f"How many [fewer|less] {{o}} {does} {loser} {{b}} than {winner}?",
              f"how many fewer {{o}} {loser} {{v}} than {winner}", f"{high} - {low}", "a b", "d"),
        c.ask(f"How many {{o}} [{does} they {{b}} [in total|altogether|together|in all]|{does} {{A}} and {{B}} {{b}} "
              "[altogether|in all|combined]]?", "the total number of {o}", f"{known} + {asked}", "a b", "d"),
        c.ask(f"How many {{o}} {does} they {{b}} [in total|altogether|together|in all]?", "the total number of {o}",
              [f"{known} {sign} {d}", f"R1 + {known}"], "a d", "b"),
    ]  # fmt: skip
    style = r.random()
    if style < 0.3:  # a third actor
        third = asked + e
        c.set(c3=third)
        if r.random() < 0.5:
            facts.append(c.fact("e", "{C} " + verb + "{e} more {o} than {B}."))
            asks.append(c.ask(f"How many {{o}} {does} {{C}} {{b}}?", "the number of {o} {C} {v}",
                              [f"{known} {sign} {d}", f"R1 + {e}"], "a d e", "b"))
            asks.append(c.ask(f"How many {{o}} {does} {{C}} {{b}}?", "the number of {o} {C} {v}",
                              f"{asked} + {e}", "b e"))  # fmt: skip
        else:
            facts.append(c.fact("c", "{C} " + verb + "{c3} {o}."))
            asks.append(c.ask(f"How many {{o}} {does} {{A}} and {{C}} {{b}} [altogether|together|in total]?",
                              "the number of {o} of {A} and {C}", f"{known} + {third}", "a c"))  # fmt: skip
            asks.append(c.ask(f"How many more {{o}} {does} {{C}} {{b}} than {{B}}?",
                              "how many more {o} {C} {v} than {B}", f"{third} - {asked}", "b c"))  # fmt: skip
    elif style < 0.75:  # a second thing, in the same sentence
        past2, base2, other = _act(r)
        f = number(r, 1, top)
        known2 = number(r, 1, top) + f
        up2 = r.random() < 0.5
        asked2 = known2 + f if up2 else known2 - f
        if asked2 > 0 and other != thing:
            c.set(p=other, f=f, a2=known2, b2=asked2, w2="more" if up2 else r.choice(("fewer", "less")))
            if not have and r.random() < 0.5:
                c.set(v2=past2, n2=base2)
            else:
                c.set(v2=c.slots["v"], n2=c.slots["b"])
            same = c.slots["v2"] == c.slots["v"]
            facts[0] = c.fact("a", "{A} " + verb + "{a} {o} and " + ("" if same else "{v2} ") + "{a2} {p}.")
            facts[1] = c.fact("b", "{B} " + verb + c.number(asked) + " {o} and " + ("" if same else "{v2} ") + "{b2} {p}.")
            facts[2] = c.fact("d", "{B} " + verb + "{d} " + word + " {o} and {f} {w2} {p} than {A}.")
            sign2 = "+" if up2 else "-"
            undo2 = "-" if up2 else "+"
            asks = [q for q in asks if len(q.steps[0].formulas) == 1 and q.need != "a b"]
            asks += [
                c.ask(f"How many {{p}} {does} {{B}} {{n2}}?", "the number of {p} {B} {v2}",
                      f"{known2} {sign2} {f}", "a d", "b"),
                c.ask(f"How many {{p}} {does} {{A}} {{n2}}?", "the number of {p} {A} {v2}",
                      f"{asked2} {undo2} {f}", "b d", "a"),
                c.ask(f"How many {{p}} {does} {{A}} and {{B}} {{n2}} [altogether|in total|together]?",
                      "the total number of {p}", f"{known2} + {asked2}", "a b", "d"),
                c.ask(f"How many {{o}} {does} {{A}} and {{B}} {{b}} [altogether|in total|together]?",
                      "the total number of {o}", f"{known} + {asked}", "a b", "d"),
                c.ask(f"How many {{o}} and {{p}} {does} {{A}} {{b}} [altogether|in total]?",
                      "the total number of {o} and {p} of {A}", f"{known} + {known2}", "a"),
            ]  # fmt: skip
            if up2:
                asks.append(c.ask(f"How many more {{p}} {does} {{B}} {{n2}} than {{A}}?",
                                  "how many more {p} {B} {v2} than {A}", f"{asked2} - {known2}", "a b", "d"))  # fmt: skip
            if known > known2:
                asks.append(c.ask(f"How many more {{o}} than {{p}} {does} {{A}} {{b}}?",
                                  "how many more {o} than {p} {A} {v}", f"{known} - {known2}", "a"))  # fmt: skip
    return World(c, facts, asks, shuffle=True, extra=0.25)


def series(r: Random) -> World:
    """The same activity on several days, rounds or months."""
    past, base, thing = _act(r)
    top = size(r)
    values = [number(r, 1, top) for _ in range(3)]
    if values[0] == values[1]:
        values[0] += 2
    when = r.choice((
        ("on {D1}", "on {D2}", "on {D3}"), ("yesterday", "today", "the day before yesterday"), ("in {M}", "in {N}", "last month"),
        ("in the morning", "in the afternoon", "in the evening"), ("this year", "last year", "two years ago"),
        ("in the first round", "in the second round", "in the third round"), ("last week", "this week", "two weeks ago"),
        ("at the {P}", "at the {Q}", "at home"), ("before lunch", "after lunch", "at night"),
        ("in the first half", "in the second half", "in the extra time"), ("last season", "this season", "in the playoffs"),
    ))  # fmt: skip
    c = teller(r, v=past, b=base, o=thing, x=values[0], y=values[1], z=values[2])
    c.set(w1=c(when[0]), w2=c(when[1]), w3=c(when[2]), t=sum(values), p=sum(values[:2]), d=abs(values[0] - values[1]))
    who = r.choice(("{A}", "{A}", "{A}", "The [workers|students|team|club|family|class]", "{A} and {B}"))
    c.set(W=c(who), they="they" if who != "{A}" else c.slots["he"])
    more = ("w1", "w2") if values[0] > values[1] else ("w2", "w1")
    high, low = max(values[:2]), min(values[:2])
    facts = [
        c.fact("x", "{W} {v} {x} {o} {w1}.", "{W} {v} some {o} {w1}."),
        c.fact("y", "[{they}|{W}] {v} {y} {o} {w2}.", "{they} {v} some {o} {w2}."),
        c.fact("z", "[{they}|{W}] {v} {z} {o} {w3}."),
        c.fact("d", "{they} {v} {d} more {o} {" + more[0] + "} than {" + more[1] + "}."),
        c.fact("p", "{W} {v} {p} {o} {w1} and {w2} together."),
        c.fact("t", "In all {they} {v} {t} {o}."),
    ]
    asks = [
        c.ask("How many {o} did {W} {b} {w1} and {w2}[| altogether| in total]?", "the number of {o} {w1} and {w2}",
              f"{values[0]} + {values[1]}", "x y", "p t d"),
        c.ask("How many {o} did {W} {b} [in total|altogether|in all|in the three times together]?",
              "the total number of {o}", f"{values[0]} + {values[1]} + {values[2]}", "x y z", "p t d"),
        c.ask("How many more {o} did {W} {b} {" + more[0] + "} than {" + more[1] + "}?",
              "how many more {o} {W} {v} {" + more[0] + "} than {" + more[1] + "}", f"{high} - {low}", "x y", "d"),
        c.ask("How many [fewer|less] {o} did {W} {b} {" + more[1] + "} than {" + more[0] + "}?",
              "how many fewer {o} {W} {v} {" + more[1] + "} than {" + more[0] + "}", f"{high} - {low}", "x y", "d"),
        c.ask("How many {o} did {W} {b} {" + more[0] + "}?", "the number of {o} {" + more[0] + "}",
              f"{low} + {high - low}", ("y" if more[0] == "w1" else "x") + " d", ("x" if more[0] == "w1" else "y") + " p t"),
        c.ask("How many {o} did {W} {b} {" + more[1] + "}?", "the number of {o} {" + more[1] + "}",
              f"{high} - {high - low}", ("x" if more[0] == "w1" else "y") + " d", ("y" if more[0] == "w1" else "x") + " p t"),
        c.ask("How many {o} did {W} {b} {w2}?", "the number of {o} {w2}", f"{sum(values[:2])} - {values[0]}", "x p",
              "y d t"),
        c.ask("How many {o} did {W} {b} {w3}?", "the number of {o} {w3}",
              [f"{values[0]} + {values[1]}", f"{sum(values)} - R1"], "x y t", "z p d"),
    ]  # fmt: skip
    if values[0] > values[1] + values[2]:
        asks.append(c.ask("How many more {o} did {W} {b} {w1} than {w2} and {w3} together?",
                          "how many more {o} {w1} than at the other times", [f"{values[1]} + {values[2]}", f"{values[0]} - R1"],
                          "x y z", "p t d"))  # fmt: skip
    return World(c, facts, asks, shuffle=r.random() < 0.3, extra=0.25)


def place(r: Random) -> World:
    """Living things or objects in a place. Some arrive and some leave."""
    people = r.random() < 0.5
    thing = noun(r, words.PEOPLE if people else words.LIVING + words.THINGS)
    other = noun(r, words.PEOPLE if people else words.LIVING)
    top = size(r)
    off, on = number(r, 1, top), number(r, 1, top)
    start = off + number(r, 1, top)
    end, final = start - off + on, start - off
    total = start + number(r, 1, top)
    c = teller(r, o=thing, z=other, s=start, x=off, y=on, e=end, f=final, u=total - start, t=total, g=start + on)
    if people:
        where = r.choice("in the {P}|at the {P}|on the bus|on the train|in the {P}|in the room|on the ship|at the party".split("|"))
    else:
        where = r.choice("in the {P}|at the {P}|on the shelf|in the box|on the table|in a bag|near the {P}|in the yard".split("|"))
    c.set(L=c(where))
    if people:
        go, come = r.choice((("got off", "got on"), ("left", "joined them"), ("went home", "arrived"), ("left", "came in")))
        going, coming = c.r.choice((("leave", "come"), ("go away", "arrive")))
        if go == "got off":
            going, coming = "get off", "get on"
    else:
        go, come = r.choice((
            ("were taken away", "were added"), ("were removed", "were put there"), ("were sold", "were brought"),
            ("were moved away", "arrived"), ("disappeared", "appeared"), ("were cut", "were placed there"),
        ))  # fmt: skip
        going, coming = "", ""
    c.set(go=go, come=come)
    facts = [
        c.fact("s", "There [are|were] {s} {o} {L}[| at first| initially].", "There were some {o} {L}."),
        c.fact("u", "There [are|were] also {u} {z} {L}."),
        c.fact("x", "[Then|Later|After a while|] {x} {o} {go}.", "Then some {o} {go}."),
        c.fact("y", "[Then|Later|Afterwards|] {y} [more|other|new] {o} {come}.", "Some more {o} {come}."),
        c.fact("t", "[There were {t} {o} and {z} in total|Altogether there are {t} {o} and {z}]."),
    ]
    gone = "were " if people and go == "left" else ""
    asks = [
        c.ask("How many {o} are [there|{L}] [now|in the end]?", "the number of {o} {L} now",
              [f"{start} - {off}", f"R1 + {on}"], "s x y", "t"),
        c.ask("How many {o} [are left|remain|are still {L}|are {L} now]?", "the number of {o} left",
              f"{start} - {off}", "s x", "y t"),
        c.ask("How many {o} are {L} now?", "the number of {o} {L} now", f"{start} + {on}", "s y", "x t"),
        c.ask("How many {o} and {z} are there [altogether|in total|in all]?", "the total number of {o} and {z}",
              f"{start} + {total - start}", "s u", "x y t"),
        c.ask("How many {z} are [there|{L}]?", "the number of {z}", f"{total} - {start}", "s t", "u x y"),
    ]  # fmt: skip
    if on > off:
        asks.append(c.ask(f"How many more {{o}} {come} than {go}?", f"how many more {{o}} {come} than {go}",
                          f"{on} - {off}", "x y", "t"))  # fmt: skip
    if start > total - start:
        asks.append(c.ask("How many more {o} than {z} are there[| {L}]?", "how many more {o} than {z} there are",
                          f"{start} - {total - start}", "s u", "x y t"))  # fmt: skip
    elif start < total - start:
        asks.append(c.ask("How many [fewer|less] {o} than {z} are there[| {L}]?", "how many fewer {o} than {z} there are",
                          f"{total - start} - {start}", "s u", "x y t"))  # fmt: skip
    if r.random() < 0.5:
        facts.append(c.fact("f", "Now there are {f} {o} [left|{L}]."))
        facts.append(c.fact("g", "Now there are {g} {o} {L}."))
        hidden = "t f g"
        asks = [type(q)(q.text, q.steps, q.need, q.hide + " " + hidden) for q in asks]
        asks += [
            c.ask(f"How many {{o}} {gone}{go}?".replace("were left", "left"), "the number of {o} that {go}",
                  f"{start} - {final}", "s f", "x y t g"),
            c.ask("How many {o} were {L} [at first|initially|in the beginning|before]?", "the number of {o} at first",
                  f"{final} + {off}", "x f", "s y t g u"),
            c.ask(f"How many [more|new|] {{o}} {come}?", "the number of {o} that {come}",
                  f"{start + on} - {start}", "s g", "x y t f"),
        ]  # fmt: skip
        if people and going:
            asks.append(c.ask(f"How many {{o}} did {going}?", "the number of {o} that {go}",
                              f"{start} - {final}", "s f", "x y t g"))  # fmt: skip
            asks.append(c.ask(f"How many {{o}} did {coming}?", "the number of {o} that {come}",
                              f"{start + on} - {start}", "s g", "x y t f"))  # fmt: skip
    return World(c, facts, asks, extra=0.3)


def recipe(r: Random) -> World:
    """A recipe that is partly done."""
    first, second, third = r.sample(words.INGREDIENTS, 3)
    unit = r.choice(("cups", "spoons", "grams", "ounces", "tablespoons", "liters"))
    top = r.choice((10, 15, 20))
    x, y = number(r, 1, top), number(r, 1, top)
    a, b, z = x + number(r, 1, top), y + number(r, 1, top), number(r, 1, top)
    dish = r.choice("cake|pie|bread|soup|stew|pudding|pizza|salad|batch of cookies|sauce|dessert".split("|"))
    c = teller(r, i=first, j=second, k=third, U=unit, x=x, y=y, a=a, b=b, z=z, dish=dish, la=a - x)
    facts = [
        c.fact("need", "[The instructions list|For it {he} needs|The cookbook asks for] {a} {U} of {i}[,| and] {b} {U} of {j}[ and {z} {U} of {k}|]."),
        c.fact("x", "[{he}|{A}] [has] [weighed out|measured|poured] {x} {U} of {i} so far.", "{he} has measured some {i}."),
        c.fact("y", "[{he}|{A}] [has] [weighed out|measured|poured] {y} {U} of {j} so far."),
        c.fact("la", "{la} {U} of {i} are missing."),
    ]
    asks = [
        c.ask("How many {U} of {i} [are still missing|must {he} still weigh out|are yet to be measured]?",
              "the {U} of {i} still needed", f"{a} - {x}", "need x", "la"),
        c.ask("How many {U} of {j} [are still missing|must {he} still weigh out]?",
              "the {U} of {j} still needed", f"{b} - {y}", "need y"),
        c.ask("How many {U} of {i} and {j} does {A} need [altogether|in total]?", "the total {U} of {i} and {j}",
              f"{a} + {b}", "need", "la"),
        c.ask("How many {U} of {i} has {A} measured [by now|so far]?", "the {U} of {i} put in",
              f"{a} - {a - x}", "need la", "x"),
    ]  # fmt: skip
    if a > b:
        asks.append(c.ask("How many more {U} of {i} than {j} does {A} need?", "how many more {U} of {i} than {j} are needed",
                          f"{a} - {b}", "need", "la"))  # fmt: skip
        asks.append(c.ask("By how many {U} does the {i} in the list exceed the {j}?",
                          "how many more {U} of {i} than {j} are needed", f"{a} - {b}", "need", "la"))  # fmt: skip
    return World(c, facts, asks, extra=0.4, lead=["For the weekend {A} prepares a {dish}.", "A {dish} is on {A}'s list for today."])


def progress(r: Random) -> World:
    """A task that is partly done, sometimes in two subjects."""
    past, base, thing = r.choice((
        ("finished", "finish", "{S} problems|{S} pages|{S} exercises"), ("read", "read", "pages|chapters|books"),
        ("solved", "solve", "{S} problems|puzzles"), ("washed", "wash", "dishes|shirts|cars|windows|plates"),
        ("painted", "paint", "fences|rooms|doors|walls|chairs"), ("visited", "visit", "shops|cities|houses|museums"),
        ("wrote", "write", "cards|letters|invitations"), ("planted", "plant", "trees|seeds|flowers|rows"),
        ("fixed", "fix", "bikes|chairs|cars|phones"), ("delivered", "deliver", "newspapers|packages|letters"),
        ("answered", "answer", "questions|emails|{S} questions"), ("packed", "pack", "boxes|suitcases|lunches"),
        ("attended", "attend", "games|lessons|meetings|concerts"), ("watched", "watch", "episodes|games|movies"),
    ))  # fmt: skip
    top = size(r)
    x = number(r, 1, top)
    a = x + number(r, 1, top)
    y = number(r, 1, top)
    b = y + number(r, 1, top)
    c = teller(r, S=r.choice(words.SUBJECTS), v=past, b0=base, a=a, x=x, l=a - x, b=b, y=y, m=b - y, d=number(r, 2, 9))
    pool = [c(option) for option in thing.split("|")]
    first, second = r.sample(pool, 2)
    if r.random() < 0.5:
        one, two = r.sample(words.SUBJECTS, 2)
        first, second = f"{one} {pool[0].split()[-1]}", f"{two} {pool[0].split()[-1]}"
    c.set(o=first, z=second, T=first.split()[-1])
    facts = [
        c.fact("a", "{A} [had|has|needs|needed|wanted|was asked] to {b0} {a} {o}[| for {his} {P}| this week].", "{A} had to {b0} some {o}."),
        c.fact("b", "{he} also [had|has|wanted] to {b0} {b} {z}."),
        c.fact("x", "[So far {he}|{he} already|{A}|By {D1} {he}] {v} {x} {o}[| in {d} days].", "{he} {v} some {o}."),
        c.fact("y", "{he} {v} {y} {z}."),
        c.fact("l", "{he} still [had|has] {l} {o} to {b0}."),
    ]
    asks = [
        c.ask("How many [more|] {o} does {A} [still have|have left|still need] to {b0}?".replace("[more|]", ""),
              "the number of {o} still to {b0}", f"{a} - {x}", "a x", "l"),
        c.ask("How many more {o} [must {A}|does {he} have to|should {A}|does {A} need to] {b0}?",
              "the number of {o} still to {b0}", f"{a} - {x}", "a x", "l"),
        c.ask("How many {z} does {A} [still have|have left] to {b0}?", "the number of {z} still to {b0}",
              f"{b} - {y}", "b y"),
        c.ask("How many {o} [did {A} {b0}|had {A} {v}] [so far|already]?".replace("had {A} {v}", "did {he} {b0}"),
              "the number of {o} {v} so far", f"{a} - {a - x}", "a l", "x"),
        c.ask("How many {o} did {A} have to {b0} [at first|in all|in total|altogether]?", "the number of all {o} to {b0}",
              f"{x} + {a - x}", "x l", "a"),
        c.ask("How many {o} and {z} did {A} {b0} [in total|altogether]?", "the total number of {o} and {z} done",
              f"{x} + {y}", "x y", "l"),
    ]  # fmt: skip
    if x > y:
        asks.append(c.ask("How many more {o} than {z} did {A} {b0}?", "how many more {o} than {z} {A} {v}",
                          f"{x} - {y}", "x y", "l"))  # fmt: skip
    if a > b:
        asks.append(c.ask("How many more {o} than {z} did {A} have to {b0}?", "how many more {o} than {z} were to {b0}",
                          f"{a} - {b}", "a b", "l"))  # fmt: skip
    return World(c, facts, asks, extra=0.35)


def transfer(r: Random) -> World:
    """Two actors, one of whom gives to the other."""
    thing = noun(r)
    top = size(r)
    x = number(r, 1, top)
    a, b = x + number(r, 1, top), number(r, 1, top)
    c = teller(r, o=thing, a=a, b=b, x=x, e=a - x, f=b + x, d=number(r, 2, 30))
    facts = [
        c.fact("a", "{A} [has|had] {a} {o}.", "{A} had some {o}."),
        c.fact("b", "{B} [has|had] {b} {o}."),
        c.fact("x", "{A} [gave|handed|passed|lent] {x} [of {his} {o}|{o}|] to {B}.", "{A} gave some of {his} {o} to {B}."),
        c.fact("e", "[Now|Then] {A} has {e} {o} left."),
        c.fact("f", "[Now|Then] {B} has {f} {o}."),
    ]
    asks = [
        c.ask("How many {o} does {A} have [now|left]?", "the number of {o} {A} has left", f"{a} - {x}", "a x", "e f"),
        c.ask("How many {o} does {B} have now?", "the number of {o} {B} has now", f"{b} + {x}", "b x", "e f"),
        c.ask("How many {o} did {A} give to {B}?", "the number of {o} {A} gave", f"{a} - {a - x}", "a e", "x f"),
        c.ask("How many {o} did {A} give to {B}?", "the number of {o} {B} got", f"{b + x} - {b}", "b f", "x e"),
        c.ask("How many {o} did {B} have [at first|before]?", "the number of {o} {B} had before", f"{b + x} - {x}", "x f", "b e"),
        c.ask("How many {o} did {A} have [at first|before]?", "the number of {o} {A} had before", f"{a - x} + {x}", "x e", "a f"),
        c.ask("How many {o} do {A} and {B} have [altogether|together|in total]?", "the total number of {o}",
              f"{a} + {b}", "a b", "e f"),
    ]  # fmt: skip
    if a > b:
        asks.append(c.ask("How many more {o} did {A} have than {B} [at first|before that|in the beginning]?", "how many more {o} {A} had than {B}",
                          f"{a} - {b}", "a b", "e f"))  # fmt: skip
    return World(c, facts, asks, extra=0.35)


WORLDS = ((ledger, 5), (two_kinds, 4), (compare, 5), (series, 5), (place, 4), (recipe, 1), (progress, 3), (transfer, 2))
