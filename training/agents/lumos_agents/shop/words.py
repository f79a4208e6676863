"""Words for products: kinds, attributes and options. Half of all names and many option values are invented."""

from __future__ import annotations

from random import Random

from ..invented import code, number, word

# Department, path of categories, kinds.
DEPARTMENTS = [
    ("fashion", "Clothing › Women", "dresses|blouses & button-down shirts|skirts|cardigans|leggings|sandals|ankle boots|handbags|scarves|pyjama sets|tops, tees & shirts|sun hats|tunics|jumpsuits|ballet flats|women's coats & parkas"),
    ("fashion", "Clothing › Men", "t-shirts|casual shirts|jeans|hoodies|swim trunks|belts|loafers & slip-ons|work boots|ties|polo shirts|men's sweaters|shorts|slippers|rain coats|dress shirts|track pants"),
    ("garden", "Home › Furniture", "bookcases|bar stools|coffee tables|bed frames|desk chairs|nightstands|sofa tables|ottomans|wall shelves|dining sets|tv stands|side tables|home office desks|sofas & couches"),
    ("garden", "Home › Decor", "area rugs|wall mirrors|candles|wall clocks|picture frames|window blinds|duvet covers|bath mats|shower curtains|vases|cushion covers|string lights|ceiling lights|wall art"),
    ("garden", "Home › Kitchen", "kettles|baking pans|chopping boards|tea towels|water bottles|lunch boxes|spice racks|coffee mugs|mixing bowls|knife sets|food storage bags|dinner plates"),
    ("grocery", "Grocery › Snacks", "crackers|dried fruit|potato chips|granola bars|cookies|chocolate bars|popcorn|beef jerky|rice cakes|pretzels|nut butters|fruit leathers|snack mixes"),
    ("grocery", "Grocery › Pantry", "olive oils|herbal teas|hot sauces|pasta & noodles|cooking spices|cake mixes|canned beans|syrups|cereals|instant coffee|coconut milk|rice & grains|jams, jellies & sweet spreads"),
    ("beauty", "Beauty › Skin Care", "face creams|sunscreens|lip balms|cleansing oils|eye masks|toners|body scrubs|hand soaps|bath bombs|make-up removers|facial cleansers & washes|skin care sets"),
    ("beauty", "Beauty › Hair Care", "shampoos|conditioners|hair masks|hair brushes|hair dyes|beard oils|wigs|hair clips & accessories|dry shampoos|curling irons|hair extensions|hair loss products"),
    ("beauty", "Beauty › Tools", "nail files|tweezers|toothbrushes|razors|make-up brushes|travel bottles|cotton pads|massage tables|refillable containers|bags & cases|mirrors"),
    ("electronics", "Electronics › Accessories", "phone cases|screen protectors|charging cables|memory cards|tripods|tablet stands|laptop sleeves|hdmi cables|batteries|remote controls|cases, holsters & sleeves|power adapters|mounts"),
    ("electronics", "Electronics › Audio", "headphones|soundbars|radios|microphones|turntables|bluetooth speakers|amplifiers|clock radios|home theater systems|earbuds|subwoofers"),
    ("electronics", "Electronics › Computers", "keyboards|monitors|routers|webcams|desktop computers|laptops|hard drives|projectors|mini pcs|tablets|game controllers|security cameras"),
    ("sports", "Sports › Outdoors", "tents|hiking poles|camping lanterns|sleeping bags|backpacks|bike lights|hammocks|binoculars|dumbbells|jump ropes|resistance bands|headlamps"),
]

ATTRIBUTES = (
    "machine wash|hand wash|long sleeve|short sleeve|slim fit|relaxed fit|elastic waist|high waist|rubber sole|memory foam|faux leather|drawstring waist|"
    "button closure|lace closure|water resistant|tummy control|quick drying|moisture wicking|daily wear|teen girls|regular fit|polyester spandex|solid wood|"
    "easy assemble|assembly required|space saving|living room|dining room|mid century|storage space|queen size|king size|twin size|stainless steel|tempered glass|"
    "easy clean|easy install|machine washable|super soft|ready hang|eco friendly|bpa free|dishwasher safe|lead free|gluten free|non gmo|dairy free|sugar free|"
    "low sodium|low carb|keto friendly|plant based|artificial colors|high protein|individually wrapped|ready eat|usda organic|nut free|soy free|old fashioned|"
    "natural ingredients|artificial flavors|cruelty free|paraben free|fragrance free|dry skin|sensitive skin|oily skin|dead skin|hyaluronic acid|fine lines|"
    "anti aging|dark circles|tea tree|coconut oil|argan oil|seed oil|dry hair|hair growth|hair loss|damaged hair|natural hair|long lasting|easy use|easy carry|"
    "travel size|leak proof|non toxic|nail polish|fast charging|wireless charging|wireless bluetooth|high speed|high definition|noise cancelling|hands free|"
    "plug play|power amplifier|stereo sound|heavy duty|carbon fiber|glass screen|gold plated|case cover|light weight|high performance|usb port|aluminum alloy|"
    "output protection|dual band|quad core|non slip|double sided|oil free|alcohol free|clinically proven|rose gold|contrast color|batteries included"
).split("|")

COLOURS = (
    "black white red blue navy grey gray green olive teal rust sage cream ivory beige khaki brown tan burgundy wine pink coral peach orange mustard yellow gold silver purple "
    "plum lavender mint turquoise aqua charcoal slate walnut oak espresso natural clear multicolor rose camel copper bronze"
).split()
COLOUR_WORDS = "dark light heather bright vintage matte pale deep army sky royal hot ash dusty floral striped camo marble solid wash".split()
FLAVOURS = "vanilla hazelnut caramel cinnamon lemon lime mango peach cherry strawberry blueberry coconut almond maple honey mint ginger chili garlic jalapeno cheddar barbecue original unsalted sea-salt cocoa espresso".split()
NOUNS = "fox|lake|river stone|mountain|sunset|elephant|forest path|butterfly|moon and stars|compass|leaf|harbor|roses|skyline|feather|waves|owl|lemons|zebra|dandelion|map of the world|tulip field|cactus|whale|vintage car".split("|")
SIZES = ["small", "medium", "large", "x-large", "xx-large", "3x-large", "4x-large", "x-small", "one size", "queen", "king", "twin", "full", "twin xl", "standard", "mini"]


def alike(r: Random, count: int) -> list[str]:
    """Returns attributes that share words, such as `dry skin` and `sensitive skin`: repeated words are hard to copy."""
    chosen = [r.choice(ATTRIBUTES)]
    while len(chosen) < count:
        word_ = r.choice(" ".join(chosen).split())
        others = [a for a in ATTRIBUTES if word_ in a.split() and a not in chosen]
        chosen.append(r.choice(others) if others and r.random() < 0.8 else f"{word_} {r.choice(ATTRIBUTES).split()[-1]}")
    return list(dict.fromkeys(chosen))


def colour(r: Random) -> str:
    """Returns a value of a colour option."""
    base = r.choice(COLOURS)
    return r.choice(
        (
            lambda: base,
            lambda: base,
            lambda: f"{r.choice(COLOUR_WORDS)} {base}",
            lambda: f"{base} {r.choice(COLOURS)}",
            lambda: f"{base} | {r.choice(COLOURS)}",
            lambda: f"{r.choice('abcdefgxz')}{r.randint(1, 20)}-{base}",
            lambda: f"{r.choice('abcdz')}{r.randint(1, 99):02}#{base}",
            lambda: f"{r.randint(1, 30)}-{base}",
            lambda: f"{base}-{r.randint(1, 400)}",
            lambda: f"{base} ({r.choice(NOUNS)})",
            lambda: f"{word(r)} {base}",
            lambda: f"{base}/{r.choice(COLOURS)}",
            lambda: r.choice(NOUNS),
            lambda: f"{r.choice(NOUNS)} {r.randint(1, 60)}",
            lambda: f"style {r.randint(1, 20)}",
            lambda: f"color{r.randint(1, 60)}",
            lambda: f"{base} | {base}",
            lambda: f"{base}{r.randint(1, 99) * 101}",
            lambda: f"{r.choice(COLOUR_WORDS)} {base} | {r.choice(COLOUR_WORDS)} {base}",
            lambda: f"{r.choice('abcd')}-{base} {base}",
            lambda: word(r, 2, 4),
            lambda: f"{code(r, r.randint(2, 6)).lower()}",
        )
    )()


def size(r: Random) -> str:
    """Returns a value of a size option."""
    low, high = r.randint(4, 60), r.randint(8, 96)
    unit = r.choice(("inch", "inches", "ounce", "fl oz", "oz", "ft", "pack", "count", "cm", "mm", "lb", "ml"))
    return r.choice(
        (
            lambda: r.choice(SIZES),
            lambda: r.choice(SIZES),
            lambda: f"{r.choice(SIZES)} {r.choice(('tall', 'wide', 'petite', 'plus', 'big'))}",
            lambda: f"{r.randint(5, 13)}{r.choice(('', '.5'))}",
            lambda: f"{r.randint(5, 12)} {r.choice(('wide', 'narrow', 'x-wide', 'women | 8 men', 'little kid'))}",
            lambda: f"{low} x {high} inch",
            lambda: f"{low}x{high} in",
            lambda: f'{low}"w x {high}"h',
            lambda: f"{low} {unit}",
            lambda: f"{low}.{r.randint(1, 9)} {unit} (pack of {r.randint(1, 24)})",
            lambda: f"{low} {unit} - {r.randint(2, 12)} pack",
            lambda: f"{low}w x {high}l",
            lambda: f"{r.choice((64, 128, 256, 512))}gb {r.choice(('ram', 'ssd', 'emmc'))} | {r.randint(1, 4)}tb",
            lambda: f"set of {r.randint(2, 9)}",
            lambda: f"{r.randint(1, 9)} pack {r.choice(SIZES)}",
            lambda: f"{low} foot (pack of {r.randint(1, 9)})",
            lambda: f"{low}*{high}cm",
            lambda: f"{code(r, 3).lower()} {low}",
            lambda: f"{low} x {low} inch",
            lambda: f'{low}"w x {low}"l',
            lambda: f"{low}x{low}in+{low}x{high}in",
            lambda: f"{low} ft {r.randint(1, 11)} in x {high} ft {r.randint(1, 11)} in",
            lambda: f"{low} {unit} x {low} {unit}",
            lambda: f"{low * 11 % 100}{low * 11 % 100} {unit}",
        )
    )()


def style(r: Random) -> str:
    """Returns a value of another option."""
    return r.choice(
        (
            lambda: f"{word(r)} {r.choice(NOUNS)}",
            lambda: f"with {r.choice(NOUNS)}",
            lambda: r.choice(NOUNS),
            lambda: f"{r.choice(FLAVOURS)} {r.choice(('', 'roast', 'blend', 'mix', 'crunch'))}".strip(),
            lambda: f"{r.choice(FLAVOURS)} & {r.choice(FLAVOURS)}",
            lambda: f"{word(r)} {number(r, r.randint(1, 4))}",
            lambda: f"{code(r, r.randint(3, 7)).lower()}",
            lambda: f"{r.randint(1, 12)} pack",
            lambda: f"{r.choice(COLOURS)} frame only",
            lambda: f"{r.choice(('dual', 'single', 'wall', 'floor'))} {r.choice(('mount', 'layer', 'port', 'panel'))}",
        )
    )()


VALUES = {"color": colour, "size": size}
OTHER_OPTIONS = ["style", "flavor name", "scent", "material type", "pattern name", "item package quantity", "team name", "capacity", "length", "number of items", "flavor", "unit count", "configuration", "edition", "special size type", "fit type", "item shape"]


def option_names(r: Random) -> list[str]:
    """Returns the names of a product's options: none to three."""
    names = [name for name, share in (("color", 0.6), ("size", 0.55)) if r.random() < share]
    if r.random() < 0.3:
        names.append(r.choice(OTHER_OPTIONS))
    return names
