"""The lexicon of the problem generator."""

from __future__ import annotations

from random import Random

MEN = """Adam Aaron Abel Ahmed Alan Albert Alex Amir Andre Andy Anton Arthur Ben Bill Blake Bobby Boris Brad Brian
Bruno Caleb Carl Carlos Charlie Chris Cody Colin Connor Cyrus Dan Daniel Darius David Dean Dennis Derek Diego Dylan
Eddie Eli Emil Eric Ethan Evan Faisal Felix Finn Frank Fred Gary George Gil Grant Greg Hal Hank Harry Hector Henry
Hugo Ian Igor Isaac Ivan Jack Jacob Jake James Jamal Jared Jason Jay Jeff Jerry Jim Joe John Jonah Jordan Jorge Jose
Josh Juan Kai Karl Keith Ken Kevin Kofi Kurt Kyle Lars Leo Liam Logan Lucas Luis Luke Manuel Marco Mark Martin Matt
Max Michael Miguel Mike Milo Mohamed Nate Nathan Ned Neil Nick Noah Oliver Omar Oscar Owen Paul Pedro Pete Phil Rafael
Raj Ralph Ray Rick Robert Robin Roger Ron Ross Roy Ruben Ryan Sam Scott Sean Seth Simon Stan Steve Tariq Ted Theo Tim
Toby Todd Tom Tony Trevor Troy Tyler Victor Vikram Vince Wade Walter Wei Will Wyatt Yusuf Zach Zane""".split()

WOMEN = """Abby Ada Aisha Alice Amanda Amber Amy Ana Andrea Angela Anita Ann Anna April Ashley Ava Bella Beth Betty
Bianca Brenda Carla Carmen Carol Cathy Chloe Claire Clara Cora Daisy Dana Debra Diana Donna Dora Edith Elena Ella
Ellen Elsa Emily Emma Erin Esther Eva Faith Farah Fatima Faye Fiona Flora Gina Grace Greta Gwen Hannah Hazel Heather
Heidi Helen Holly Ida Ines Irene Iris Isabel Ivy Jade Jane Janet Jasmine Jean Jenna Jenny Jessica Jill Joan Josie Joy
Joyce Julia Julie June Karen Kate Katie Kelly Kim Laila Lara Laura Leah Lena Leslie Lily Linda Lisa Liz Lola Lucy Luna
Lydia Maggie Mara Maria Marie Martha Mary Maya Megan Mei Melanie Mia Mina Molly Mona Nadia Nancy Naomi Nina Nora Olga
Olivia Paige Pam Pat Paula Penny Petra Priya Rachel Rebecca Rita Rosa Rose Ruby Ruth Sally Samira Sandra Sara Sarah
Selma Shelly Sofia Sonia Stella Sue Susan Tammy Tanya Tara Tess Tina Uma Vera Vicky Wanda Wendy Yara Yoko Zara Zoe
""".split()

TOYS = """marbles stickers balloons toy cars|toys|stamps|coins|seashells|trading cards|baseball cards|postcards|dolls|
puzzles|video games|action figures|kites|tennis balls|golf balls|beads|buttons|yo-yos|toy trains|blocks|crystals|
rocks|pebbles|bottle caps|comic books|posters|badges|keychains|figurines|bracelets|necklaces|rings|ribbons|tickets|
tokens|balls|board games|stuffed animals|teddy bears|model planes|puppets|robots|masks|hats|caps|scarves|shirts|
t-shirts|socks|gloves|jackets|shoes|belts|bows|jump ropes|skateboards|movies|CDs|albums|photos|pictures|paintings|
drawings|cards|gift cards|magnets|pins|medals|trophies|gems|diamonds|dice"""

FOOD = """apples|oranges|bananas|pears|peaches|plums|cherries|grapes|lemons|limes|mangoes|strawberries|blueberries|
melons|watermelons|kiwis|coconuts|pineapples|tomatoes|potatoes|carrots|onions|cucumbers|peppers|pumpkins|radishes|
cookies|cupcakes|muffins|donuts|brownies|pies|cakes|pastries|pretzels|crackers|candies|lollipops|chocolates|
chocolate bars|gummy bears|jelly beans|candy canes|mints|sandwiches|pizzas|slices of pizza|burgers|hot dogs|tacos|
pancakes|waffles|eggs|sausages|meatballs|dumplings|nuts|walnuts|almonds|peanuts|raisins|dates|figs|olives|
loaves of bread|rolls|bagels|biscuits|ice cream cones|popsicles|juice boxes|bottles of water|cans of soda|
bags of chips|pieces of candy|cups of tea|granola bars|slices of cake|ears of corn|pieces of gum"""

STATIONERY = """pencils|pens|crayons|markers|erasers|notebooks|books|folders|rulers|envelopes|paper clips|magazines|
newspapers|sheets of paper|staples|paint brushes|glue sticks|scissors|backpacks|textbooks|calendars|candles|letters|
cards|bookmarks|labels|maps|plates|cups|mugs|spoons|forks|bowls|napkins|towels|pillows|blankets|lamps|chairs|tables|
boxes|bottles|baskets|bags|bricks|nails|screws|tiles|planks|batteries|light bulbs|tools|ropes|wires|keys|buckets|
jars|vases|phones|laptops|computers|tablets|bicycles|bikes|cars|trucks|tires|wheels|seats|tents"""

LIVING = """flowers|roses|tulips|daisies|lilies|sunflowers|plants|trees|bushes|oak trees|pine trees|seeds|leaves|
ducks|geese|chickens|hens|cows|sheep|goats|pigs|horses|rabbits|dogs|puppies|cats|kittens|birds|parrots|pigeons|
fish|goldfish|frogs|turtles|lizards|snakes|spiders|butterflies|bees|ants|crabs|lobsters|penguins|monkeys|lions|
elephants|bears|wolves|deer|squirrels|bugs|worms|snails|hamsters"""

PEOPLE = """students|children|kids|boys|girls|adults|teachers|players|people|visitors|guests|fans|workers|dancers|
singers|swimmers|runners|volunteers|tourists|customers|passengers|soldiers|sailors|doctors|nurses|farmers|actors|
musicians|campers|hikers|scouts|members|men|women|parents|campers|employees|engineers"""


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.replace("\n", "").split("|") if part.strip()]


TOYS = _split(TOYS.replace("marbles stickers balloons toy cars", "marbles|stickers|balloons|toy cars"))
FOOD = _split(FOOD)
STATIONERY = _split(STATIONERY)
LIVING = _split(LIVING)
PEOPLE = _split(PEOPLE)
THINGS = TOYS + FOOD + STATIONERY

COLOURS = """red|blue|green|yellow|white|black|orange|purple|pink|brown|gray|silver|gold""".split("|")
QUALITIES = """big|small|large|new|old|wooden|plastic|round|square|long|short|striped|plain|fresh|broken|used|fancy|
shiny|metal|glass|paper|painted|local|foreign|rare|common|cheap|tiny|heavy|light|soft""".replace("\n", "").split("|")
FLAVOURS = """chocolate|vanilla|strawberry|lemon|peanut butter|oatmeal|cherry|blueberry|mint|caramel|sweet|salty|
sour|spicy|cheese|ginger|sugar|coconut|cinnamon|banana|apple""".replace("\n", "").split("|")

CONTAINERS = """boxes|bags|baskets|jars|crates|packs|packets|bottles|trays|drawers|shelves|buckets|cartons|bins|
cases|rows|piles|stacks|groups|bundles|folders|envelopes|containers|chests|cabinets|pages|albums|vases|bowls|plates|
rooms|tables|tanks|cages|barrels|sacks|bunches|sets|teams|rolls|suitcases|lockers|shelves|cupboards
""".replace("\n", "").split("|")
PEOPLE_GROUPS = """buses|vans|cars|rows|tents|teams|groups|rooms|classes|boats|tables|benches|cabins|wagons|squads|
lines|taxis|trains|families|houses""".replace("\n", "").split("|")

PLACES = """park|garden|school|library|store|farm|zoo|museum|kitchen|classroom|yard|office|warehouse|bakery|market|
restaurant|hotel|village|town|gym|stadium|theater|pond|lake|forest|barn|parking lot|playground|hospital|station|
factory|orchard|cafeteria|room|garage|attic|basement|fridge|pantry|closet|cabinet|shop|field|beach|camp|aquarium
""".replace("\n", "").split("|")
RELATIVES = """friend|best friend|brother|sister|mother|father|cousin|neighbor|teacher|uncle|aunt|classmate|mom|dad|
grandmother|grandfather|grandma|roommate|coach|boss""".replace("\n", "").split("|")
DAYS = "Monday|Tuesday|Wednesday|Thursday|Friday|Saturday|Sunday".split("|")
MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December".split("|")
SUBJECTS = "math|science|reading|history|English|art|spelling|geography|music|biology|chemistry".split("|")
INGREDIENTS = """flour|sugar|milk|butter|water|rice|salt|cocoa|oil|honey|cream|yogurt|oats|cheese|corn|juice|nuts|
raisins|vanilla|chocolate chips""".replace("\n", "").split("|")

IRREGULAR = {
    "scarves": "scarf", "loaves": "loaf", "leaves": "leaf", "wolves": "wolf", "shelves": "shelf", "mice": "mouse",
    "children": "child", "people": "person", "men": "man", "women": "woman", "geese": "goose", "sheep": "sheep",
    "fish": "fish", "goldfish": "goldfish", "deer": "deer", "dice": "die", "cookies": "cookie", "brownies": "brownie",
    "pies": "pie", "movies": "movie", "scissors": "pair of scissors", "knives": "knife", "axes": "axe",
    "olives": "olive", "toes": "toe", "shoes": "shoe",
}  # fmt: skip
PAST = {"pick": "picked", "find": "found", "make": "made", "buy": "bought", "get": "got", "collect": "collected"}

_ONSETS = "b bl br c ch cl d dr f fl g gl gr h j k kr l m n p pl pr qu r s sh sk sl sn sp st t th tr v w z".split()
_NUCLEI = "a e i o u ai ea ee oa oo ou".split()
_CODAS = "b ck d ft g l lm m mp n nd ng nk p r rk rn rt st t x zz".split()

SMALL = """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen
seventeen eighteen nineteen twenty""".split()


def singular(plural: str) -> str:
    """Returns the singular of a plural noun phrase, such as `slice of cake` for `slices of cake`."""
    head, of, tail = plural.partition(" of ")
    words = head.split(" ")
    last = words[-1]
    if last in IRREGULAR:
        last = IRREGULAR[last]
    elif last.endswith("ies"):
        last = last[:-3] + "y"
    elif last.endswith(("ches", "shes", "xes", "sses", "oes", "buses")):
        last = last[:-2]
    elif last.endswith("s"):
        last = last[:-1]
    return " ".join([*words[:-1], last]) + of + tail


def invented_noun(r: Random) -> str:
    """Returns a plural noun that does not exist, so that its meaning depends on the sentence."""
    syllables = r.choice((1, 2, 2))
    stem = "".join(r.choice(_ONSETS) + r.choice(_NUCLEI) for _ in range(syllables)) + r.choice(_CODAS)
    return stem + ("es" if stem.endswith(("x", "zz", "s", "sh", "ch")) else "s")


def invented_name(r: Random) -> str:
    """Returns a first name that does not exist."""
    stem = "".join(r.choice(_ONSETS) + r.choice(_NUCLEI) for _ in range(r.choice((1, 2))))
    return (stem + r.choice([*_CODAS, "", "", "a", "o", "y"])).capitalize()
