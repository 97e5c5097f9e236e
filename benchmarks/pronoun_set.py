"""Write the sentences of the pronoun test: English "it" whose German form depends on the noun that it stands for.

    python benchmarks/pronoun_set.py        writes benchmarks/pronouns.tsv again

Each sentence has three German versions that differ only in the pronoun. Nouns of each gender fill the same
templates, so only the noun tells the answer. Templates avoid other third-person nouns, and predicates that only
"es" can have, such as "es war kalt". The hard sentences come in pairs: only the last words differ, and they
determine which noun is meant.
"""

from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path

FILES = {"de": Path(__file__).with_name("pronouns.tsv"), "fr": Path(__file__).with_name("pronouns-fr.tsv")}
GENDERS = ("masculine", "feminine", "neuter")
NOMINATIVE = dict(zip(GENDERS, ("er", "sie", "es"), strict=True))
ACCUSATIVE = dict(zip(GENDERS, ("ihn", "sie", "es"), strict=True))
ARTICLE = dict(zip(GENDERS, ("der", "die", "das"), strict=True))
ARTICLE_ACCUSATIVE = {**ARTICLE, "masculine": "den"}


@dataclass(frozen=True)
class Item:
    """One English sentence, the gender of the noun that "it" means, and its versions; French has no neuter one."""

    kind: str
    gender: str
    noun: str
    english: str
    masculine: str
    feminine: str
    neuter: str = ""

    @property
    def versions(self) -> dict[str, str]:
        """Return the version with the pronoun of each gender that the language has."""
        return {gender: text for gender in GENDERS if (text := getattr(self, gender))}


# Masculine, feminine and neuter nouns, and templates. {der} and {den} are the noun with its article as subject and
# object, {er} and {ihn} the pronoun; a capital begins a sentence.
CLASSES: list[tuple[list[str], list[tuple[str, str]]]] = [
    (
        [
            "dog Hund, bird Vogel, wolf Wolf, hamster Hamster, donkey Esel, hedgehog Igel, tiger Tiger, fox Fuchs",
            "cat Katze, cow Kuh, duck Ente, mouse Maus, goat Ziege, snake Schlange, goose Gans, turtle Schildkröte",
            "horse Pferd, pig Schwein, sheep Schaf, rabbit Kaninchen, animal Tier, camel Kamel, "
            "crocodile Krokodil, squirrel Eichhörnchen",
        ],
        [
            ("The {n} did not eat because it was not hungry.", "{Der} fraß nicht, weil {er} keinen Hunger hatte."),
            ("The {n} hid because it was afraid.", "{Der} versteckte sich, weil {er} Angst hatte."),
            ("The {n} slept all day because it was old.", "{Der} schlief den ganzen Tag, weil {er} alt war."),
            ("When the {n} saw us, it disappeared.", "Als {der} uns sah, verschwand {er}."),
            ("The {n} is sick. It needs help.", "{Der} ist krank. {Er} braucht Hilfe."),
            (
                "I looked for the {n}, but I could not find it.",
                "Ich suchte {den}, aber ich konnte {ihn} nicht finden.",
            ),
            ("We fed the {n} before we sold it.", "Wir fütterten {den}, bevor wir {ihn} verkauften."),
            ("My brother caught the {n} and let it go again.", "Mein Bruder fing {den} und ließ {ihn} wieder frei."),
        ],
    ),
    (
        [
            "computer Computer, printer Drucker, television Fernseher, refrigerator Kühlschrank, "
            "alarm clock Wecker, vacuum cleaner Staubsauger, oven Ofen, engine Motor",
            "lamp Lampe, clock Uhr, camera Kamera, washing machine Waschmaschine, battery Batterie, pump Pumpe, "
            "doorbell Klingel, machine Maschine",
            "telephone Telefon, radio Radio, device Gerät, microphone Mikrofon, mobile phone Handy, "
            "microscope Mikroskop, thermometer Thermometer, headset Headset",
        ],
        [
            ("The {n} is new, but it does not work.", "{Der} ist neu, aber {er} funktioniert nicht."),
            ("We threw the {n} away because it was broken.", "Wir warfen {den} weg, weil {er} kaputt war."),
            (
                "The {n} has to be repaired because it no longer works.",
                "{Der} muss repariert werden, weil {er} nicht mehr funktioniert.",
            ),
            ("Where is the {n}? It was here yesterday.", "Wo ist {der}? {Er} war gestern noch hier."),
            ("I bought the {n}, but I never used it.", "Ich kaufte {den}, aber ich benutzte {ihn} nie."),
            ("Tom cleaned the {n} and then sold it.", "Tom reinigte {den} und verkaufte {ihn} dann."),
            ("If the {n} is too expensive, do not buy it.", "Wenn {der} zu teuer ist, kaufen Sie {ihn} nicht."),
        ],
    ),
    (
        [
            "bus Bus, train Zug, truck Lastwagen, tractor Traktor, ambulance Krankenwagen, scooter Roller, "
            "trailer Anhänger, tank Panzer",
            "tram Straßenbahn, ferry Fähre, carriage Kutsche, subway U-Bahn, locomotive Lokomotive, yacht Yacht, "
            "limousine Limousine, cable car Seilbahn",
            "car Auto, ship Schiff, boat Boot, motorcycle Motorrad, taxi Taxi, submarine U-Boot, bicycle Fahrrad, "
            "vehicle Fahrzeug",
        ],
        [
            ("The {n} stopped because it was damaged.", "{Der} hielt an, weil {er} beschädigt war."),
            ("The {n} went slowly because it was very old.", "{Der} fuhr langsam, weil {er} sehr alt war."),
            (
                "The {n} is old, but it is still very reliable.",
                "{Der} ist alt, aber {er} ist immer noch sehr zuverlässig.",
            ),
            ("The {n} came closer. It was bright red.", "{Der} kam näher. {Er} war leuchtend rot."),
            (
                "We could hear the {n} before we could see it.",
                "Wir konnten {den} hören, bevor wir {ihn} sehen konnten.",
            ),
            (
                "I recognised the {n} because I had painted it myself.",
                "Ich erkannte {den}, weil ich {ihn} selbst gestrichen hatte.",
            ),
            ("We sold the {n} because it was too big.", "Wir verkauften {den}, weil {er} zu groß war."),
        ],
    ),
    (
        [
            "table Tisch, chair Stuhl, cupboard Schrank, carpet Teppich, mirror Spiegel, suitcase Koffer, "
            "bucket Eimer, basket Korb",
            "bag Tasche, crate Kiste, bottle Flasche, vase Vase, ladder Leiter, chest Truhe, blanket Decke, "
            "mattress Matratze",
            "bed Bett, shelf Regal, sofa Sofa, pillow Kissen, barrel Fass, picture Bild, tent Zelt, parcel Paket",
        ],
        [
            (
                "I could not lift the {n} because it was too heavy.",
                "Ich konnte {den} nicht heben, weil {er} zu schwer war.",
            ),
            (
                "The {n} could not be sold because it was damaged.",
                "{Der} konnte nicht verkauft werden, weil {er} beschädigt war.",
            ),
            (
                "The {n} is beautiful, but it takes up too much space.",
                "{Der} ist schön, aber {er} nimmt zu viel Platz weg.",
            ),
            (
                "Do you like the {n}? It belonged to my grandfather.",
                "Gefällt Ihnen {der}? {Er} gehörte meinem Großvater.",
            ),
            (
                "The {n} is wet because it was outside all night.",
                "{Der} ist nass, weil {er} die ganze Nacht draußen war.",
            ),
            (
                "Please take the {n} upstairs and leave it in my room.",
                "Bitte bringen Sie {den} nach oben und lassen Sie {ihn} in meinem Zimmer.",
            ),
            (
                "I gave Tom the {n} because I no longer needed it.",
                "Ich schenkte Tom {den}, weil ich {ihn} nicht mehr brauchte.",
            ),
        ],
    ),
    (
        [
            "cake Kuchen, apple Apfel, cheese Käse, salad Salat, fish Fisch, rice Reis, pudding Pudding, ham Schinken",
            "soup Suppe, pizza Pizza, tomato Tomate, sausage Wurst, pear Birne, banana Banane, sauce Soße, "
            "chocolate Schokolade",
            "bread Brot, meat Fleisch, egg Ei, ice cream Eis, steak Steak, omelette Omelett, sandwich Sandwich, "
            "roll Brötchen",
        ],
        [
            ("I did not eat the {n} because it tasted bad.", "Ich aß {den} nicht, weil {er} schlecht schmeckte."),
            ("The {n} looks good, but it is not for you.", "{Der} sieht gut aus, aber {er} ist nicht für dich."),
            (
                "The {n} smells strange. It is probably too old.",
                "{Der} riecht seltsam. {Er} ist wahrscheinlich zu alt.",
            ),
            (
                "The {n} was so good that it was soon gone.",
                "{Der} war so gut, dass {er} bald aufgegessen war.",
            ),
            ("Tom took the {n} and ate it at once.", "Tom nahm {den} und aß {ihn} sofort."),
            (
                "If you do not like the {n}, give it to the dog.",
                "Wenn du {den} nicht magst, gib {ihn} dem Hund.",
            ),
        ],
    ),
    (
        [
            "tower Turm, station Bahnhof, palace Palast, park Park, garden Garten, tunnel Tunnel, cellar Keller, "
            "shop Laden",
            "church Kirche, school Schule, bridge Brücke, castle Burg, factory Fabrik, road Straße, "
            "library Bibliothek, mill Mühle",
            "house Haus, museum Museum, hotel Hotel, theatre Theater, hospital Krankenhaus, stadium Stadion, "
            "town hall Rathaus, building Gebäude",
        ],
        [
            (
                "The {n} was closed because it was no longer safe.",
                "{Der} wurde geschlossen, weil {er} nicht mehr sicher war.",
            ),
            ("The {n} is famous because it is very old.", "{Der} ist berühmt, weil {er} sehr alt ist."),
            (
                "When we reached the {n}, it was already closed.",
                "Als wir {den} erreichten, war {er} schon geschlossen.",
            ),
            (
                "The {n} is not far from here. It is easy to find.",
                "{Der} ist nicht weit von hier. {Er} ist leicht zu finden.",
            ),
            (
                "I know the {n} well because I see it every day.",
                "Ich kenne {den} gut, weil ich {ihn} jeden Tag sehe.",
            ),
            (
                "We visited the {n} although it was not very interesting.",
                "Wir besuchten {den}, obwohl {er} nicht sehr interessant war.",
            ),
        ],
    ),
    (
        [
            "letter Brief, contract Vertrag, plan Plan, report Bericht, proposal Vorschlag, article Artikel, "
            "film Film, novel Roman",
            "idea Idee, speech Rede, answer Antwort, newspaper Zeitung, story Geschichte, explanation Erklärung, "
            "rule Regel, message Nachricht",
            "book Buch, law Gesetz, song Lied, poem Gedicht, document Dokument, judgment Urteil, programme Programm, "
            "offer Angebot",
        ],
        [
            (
                "I do not like the {n} because it is too complicated.",
                "Mir gefällt {der} nicht, weil {er} zu kompliziert ist.",
            ),
            (
                "The {n} is important because it concerns all of us.",
                "{Der} ist wichtig, weil {er} uns alle betrifft.",
            ),
            ("The {n} is very good. It will help us a lot.", "{Der} ist sehr gut. {Er} wird uns sehr helfen."),
            (
                "We talked about the {n} for hours because it was so unusual.",
                "Wir sprachen stundenlang über {den}, weil {er} so ungewöhnlich war.",
            ),
            ("I know the {n}, but I do not understand it.", "Ich kenne {den}, aber ich verstehe {ihn} nicht."),
            (
                "Everyone talked about the {n}, but nobody took it seriously.",
                "Alle sprachen über {den}, aber niemand nahm {ihn} ernst.",
            ),
        ],
    ),
    (
        [
            "coat Mantel, hat Hut, skirt Rock, scarf Schal, sweater Pullover, suit Anzug, belt Gürtel, ring Ring",
            "jacket Jacke, cap Mütze, tie Krawatte, blouse Bluse, necklace Halskette, vest Weste, apron Schürze, "
            "uniform Uniform",
            "shirt Hemd, dress Kleid, T-shirt T-Shirt, costume Kostüm, bracelet Armband, jersey Trikot, "
            "headband Stirnband, nightgown Nachthemd",
        ],
        [
            ("I cannot wear the {n} because it is too small.", "Ich kann {den} nicht tragen, weil {er} zu klein ist."),
            ("The {n} is dirty. It has to be cleaned.", "{Der} ist schmutzig. {Er} muss gereinigt werden."),
            ("The {n} looks nice, but it does not suit me.", "{Der} sieht schön aus, aber {er} steht mir nicht."),
            (
                "I wear the {n} only on Sundays because it is very valuable.",
                "Ich trage {den} nur sonntags, weil {er} sehr wertvoll ist.",
            ),
            ("My father lost the {n} and never found it again.", "Mein Vater verlor {den} und fand {ihn} nie wieder."),
            ("Tom tried on the {n} and then bought it.", "Tom probierte {den} an und kaufte {ihn} dann."),
        ],
    ),
    (
        [
            "river Fluss, mountain Berg, lake See, forest Wald, beach Strand, hill Hügel, glacier Gletscher, "
            "waterfall Wasserfall",
            "island Insel, cave Höhle, meadow Wiese, bay Bucht, coast Küste, desert Wüste, landscape Landschaft, "
            "gorge Schlucht",
            "valley Tal, village Dorf, sea Meer, shore Ufer, reef Riff, area Gebiet, country Land, field Feld",
        ],
        [
            ("The {n} is well known because it is so beautiful.", "{Der} ist bekannt, weil {er} so schön ist."),
            (
                "The {n} is hard to reach, but it is worth a visit.",
                "{Der} ist schwer zu erreichen, aber {er} ist einen Besuch wert.",
            ),
            ("Do you know the {n}? It is not far from here.", "Kennen Sie {den}? {Er} ist nicht weit von hier."),
            ("When we saw the {n}, it lay in the sunshine.", "Als wir {den} sahen, lag {er} im Sonnenschein."),
            (
                "I have never forgotten the {n} since I first saw it.",
                "Ich habe {den} nie vergessen, seit ich {ihn} zum ersten Mal sah.",
            ),
            ("Tom photographed the {n} when he saw it.", "Tom fotografierte {den}, als er {ihn} sah."),
        ],
    ),
]

# English with {why}, German with {why}; then, for each of the two nouns that may be meant, its gender, the English and
# the German reason. The nouns of a pair differ in gender.
HARD: list[tuple[str, str, str, tuple[str, str, str], tuple[str, str, str]]] = [
    (
        "Tier, Straße",
        "The animal did not cross the street because it {why}.",
        "Das Tier überquerte die Straße nicht, weil {why}.",
        ("neuter", "was too tired", "{er} zu müde war"),
        ("feminine", "was too wide", "{er} zu breit war"),
    ),
    (
        "Pokal, Tasche",
        "The trophy did not fit into the bag because it {why}.",
        "Der Pokal passte nicht in die Tasche, weil {why}.",
        ("masculine", "was too big", "{er} zu groß war"),
        ("feminine", "was too small", "{er} zu klein war"),
    ),
    (
        "Bild, Wand",
        "The picture did not fit on the wall because it {why}.",
        "Das Bild passte nicht an die Wand, weil {why}.",
        ("neuter", "was too big", "{er} zu groß war"),
        ("feminine", "was too small", "{er} zu klein war"),
    ),
    (
        "Ball, Fenster",
        "The ball broke the window because it {why}.",
        "Der Ball zerbrach das Fenster, weil {why}.",
        ("masculine", "was so hard", "{er} so hart war"),
        ("neuter", "was so thin", "{er} so dünn war"),
    ),
    (
        "Hund, Mauer",
        "The dog did not jump over the wall because it {why}.",
        "Der Hund sprang nicht über die Mauer, weil {why}.",
        ("masculine", "was too old", "{er} zu alt war"),
        ("feminine", "was too high", "{er} zu hoch war"),
    ),
    (
        "Kuh, Wasser",
        "The cow did not drink the water because it {why}.",
        "Die Kuh trank das Wasser nicht, weil {why}.",
        ("feminine", "was not thirsty", "{er} keinen Durst hatte"),
        ("neuter", "was dirty", "{er} schmutzig war"),
    ),
    (
        "Katze, Fisch",
        "The cat did not eat the fish because it {why}.",
        "Die Katze fraß den Fisch nicht, weil {why}.",
        ("feminine", "was not hungry", "{er} keinen Hunger hatte"),
        ("masculine", "was rotten", "{er} verdorben war"),
    ),
    (
        "Bus, Brücke",
        "The bus could not drive under the bridge because it {why}.",
        "Der Bus konnte nicht unter der Brücke hindurchfahren, weil {why}.",
        ("masculine", "was too high", "{er} zu hoch war"),
        ("feminine", "was too low", "{er} zu niedrig war"),
    ),
    (
        "Auto, Tunnel",
        "The car could not drive through the tunnel because it {why}.",
        "Das Auto konnte nicht durch den Tunnel fahren, weil {why}.",
        ("neuter", "was too wide", "{er} zu breit war"),
        ("masculine", "was too narrow", "{er} zu eng war"),
    ),
    (
        "Schiff, Hafen",
        "The ship could not enter the harbour because it {why}.",
        "Das Schiff konnte nicht in den Hafen einlaufen, weil {why}.",
        ("neuter", "was too large", "{er} zu groß war"),
        ("masculine", "was too small", "{er} zu klein war"),
    ),
    (
        "Tisch, Tür",
        "The table did not fit through the door because it {why}.",
        "Der Tisch passte nicht durch die Tür, weil {why}.",
        ("masculine", "was too wide", "{er} zu breit war"),
        ("feminine", "was too narrow", "{er} zu schmal war"),
    ),
    (
        "Schlüssel, Schloss",
        "The key did not fit into the lock because it {why}.",
        "Der Schlüssel passte nicht in das Schloss, weil {why}.",
        ("masculine", "was bent", "{er} verbogen war"),
        ("neuter", "was frozen", "{er} zugefroren war"),
    ),
    (
        "Maus, Loch",
        "The mouse could not get into the hole because it {why}.",
        "Die Maus kam nicht in das Loch, weil {why}.",
        ("feminine", "was too fat", "{er} zu dick war"),
        ("neuter", "was too small", "{er} zu klein war"),
    ),
    (
        "Kaninchen, Käfig",
        "The rabbit did not leave the cage because it {why}.",
        "Das Kaninchen verließ den Käfig nicht, weil {why}.",
        ("neuter", "was afraid", "{er} Angst hatte"),
        ("masculine", "was locked", "{er} verschlossen war"),
    ),
    (
        "Lampe, Raum",
        "The lamp did not light up the room because it {why}.",
        "Die Lampe erhellte den Raum nicht, weil {why}.",
        ("feminine", "was broken", "{er} kaputt war"),
        ("masculine", "was too large", "{er} zu groß war"),
    ),
    (
        "Sofa, Raum",
        "The sofa did not fit into the room because it {why}.",
        "Das Sofa passte nicht in den Raum, weil {why}.",
        ("neuter", "was too big", "{er} zu groß war"),
        ("masculine", "was too small", "{er} zu klein war"),
    ),
    (
        "Karte, Umschlag",
        "The card did not fit into the envelope because it {why}.",
        "Die Karte passte nicht in den Umschlag, weil {why}.",
        ("feminine", "was too big", "{er} zu groß war"),
        ("masculine", "was too small", "{er} zu klein war"),
    ),
    (
        "Esel, Kiste",
        "The donkey could not carry the crate because it {why}.",
        "Der Esel konnte die Kiste nicht tragen, weil {why}.",
        ("masculine", "was too weak", "{er} zu schwach war"),
        ("feminine", "was too heavy", "{er} zu schwer war"),
    ),
    (
        "Pferd, Kutsche",
        "The horse could not pull the carriage because it {why}.",
        "Das Pferd konnte die Kutsche nicht ziehen, weil {why}.",
        ("neuter", "was too weak", "{er} zu schwach war"),
        ("feminine", "was too heavy", "{er} zu schwer war"),
    ),
    (
        "Flugzeug, Sturm",
        "The airplane could not fly through the storm because it {why}.",
        "Das Flugzeug konnte nicht durch den Sturm fliegen, weil {why}.",
        ("neuter", "was damaged", "{er} beschädigt war"),
        ("masculine", "was too violent", "{er} zu heftig war"),
    ),
]


def make_items(
    classes: Sequence[tuple[list[str], list[tuple[str, str]]]],
    hard: Sequence[tuple[str, str, str, *tuple[tuple[str, str, str], ...]]],
    genders: Sequence[str],
    with_noun: Callable[[str, str, str], str],
    with_pronoun: Callable[[str, str, str], str],
) -> list[Item]:
    """Return all sentences: each noun in two templates, then two for each pair of nouns, which differ in the reason.

    `with_noun(template, gender, noun)` inserts a noun with its article; `with_pronoun(text, noun_gender, gender)` then
    inserts the pronoun of a gender.
    """

    def item(kind: str, gender: str, noun: str, english: str, text: str) -> Item:
        return Item(kind, gender, noun, english, *(with_pronoun(text, gender, pronoun) for pronoun in genders))

    items = []
    for lists, templates in classes:
        for gender, nouns in zip(genders, lists, strict=True):
            for i, noun in enumerate(nouns.split(", ")):
                name, word = noun.rsplit(" ", 1)
                for english, text in (templates[i % len(templates)], templates[(i + 3) % len(templates)]):
                    whole = with_noun(text, gender, word)
                    items.append(item(_kind_of(text), gender, word, english.format(n=name), whole))
    for nouns, english, text, *meanings in hard:
        for gender, reason, why in meanings:
            items.append(item("hard", gender, nouns, english.format(why=reason), text.replace("{why}", why)))
    return items


def _kind_of(template: str) -> str:
    """Return the pronoun's kind: subject or object of its clause, or in a sentence of its own."""
    if "{Er}" in template or "{Il}" in template:
        return "next sentence"
    return "object" if "{ihn}" in template else "subject"


def _with_noun(text: str, gender: str, noun: str) -> str:
    subject, thing = f"{ARTICLE[gender]} {noun}", f"{ARTICLE_ACCUSATIVE[gender]} {noun}"
    capitalized = subject[0].upper() + subject[1:]
    return text.replace("{der}", subject).replace("{Der}", capitalized).replace("{den}", thing)


def _with_pronoun(text: str, _: str, gender: str) -> str:
    nominative = NOMINATIVE[gender]
    return text.format(er=nominative, Er=nominative.capitalize(), ihn=ACCUSATIVE[gender])


def make() -> list[Item]:
    """Return all German sentences."""
    return make_items(CLASSES, HARD, GENDERS, _with_noun, _with_pronoun)


def to_text(items: list[Item]) -> str:
    """Format a table with a header."""
    columns = 4 + len(items[0].versions)
    rows = [tuple(f.name for f in fields(Item)), *map(astuple, items)]
    return "".join("\t".join(row[:columns]) + "\n" for row in rows)


def read(language: str = "de") -> list[Item]:
    """Read the sentences for a target language."""
    return [Item(*line.split("\t")) for line in FILES[language].read_text(encoding="utf-8").splitlines()[1:]]


if __name__ == "__main__":
    FILES["de"].write_text(to_text(make()), encoding="utf-8")
