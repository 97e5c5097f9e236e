"""Write the sentences of the French pronoun test: English "it" that becomes il or elle by the noun that it stands for.

    python benchmarks/pronoun_set_fr.py        writes benchmarks/pronouns-fr.tsv again

Each sentence has two French versions. They differ in the pronoun and in predicates that agree with it.
As in the German set, nouns of both genders fill the same templates, and the hard sentences come in pairs.
"It" is always a subject: as an object it may be l', which has no gender.
"""

import re

from pronoun_set import FILES, Item, make_items, to_text

GENDERS = ("masculine", "feminine")
PRONOUN = dict(zip(GENDERS, ("il", "elle"), strict=True))
ARTICLE = dict(zip(GENDERS, ("le", "la"), strict=True))

# Masculine and feminine nouns, and templates. {le} is the noun with its article, {il} the pronoun. [petit|petite]
# agrees with the noun if it stands before the pronoun, else with the pronoun.
CLASSES: list[tuple[list[str], list[tuple[str, str]]]] = [
    (
        [
            "dog chien, cat chat, wolf loup, horse cheval, rabbit lapin, pig cochon, tiger tigre, fox renard",
            "cow vache, mouse souris, goat chèvre, giraffe girafe, hen poule, "
            "turtle tortue, fly mouche, frog grenouille",
        ],
        [
            ("The {n} did not eat because it was not hungry.", "{Le} n'a pas mangé parce qu'{il} n'avait pas faim."),
            ("The {n} hid because it was afraid.", "{Le} s'est [caché|cachée] parce qu'{il} avait peur."),
            ("The {n} slept all day because it was sick.", "{Le} a dormi toute la journée parce qu'{il} était malade."),
            ("When the {n} saw us, it disappeared.", "Quand {le} nous a vus, {il} a disparu."),
            ("The {n} is sick. It needs help.", "{Le} est malade. {Il} a besoin d'aide."),
            (
                "The {n} is tired, but it does not want to sleep.",
                "{Le} est [fatigué|fatiguée], mais {il} ne veut pas dormir.",
            ),
        ],
    ),
    (
        [
            "phone téléphone, refrigerator réfrigérateur, radiator radiateur, oven four, engine moteur, "
            "microphone micro, keyboard clavier, alarm clock réveil",
            "lamp lampe, watch montre, machine machine, battery batterie, pump pompe, radio radio, "
            "doorbell sonnette, calculator calculatrice",
        ],
        [
            ("The {n} is new, but it does not work.", "{Le} est [neuf|neuve], mais {il} ne fonctionne pas."),
            (
                "We sold the {n} because it made too much noise.",
                "Nous avons vendu {le} parce qu'{il} faisait trop de bruit.",
            ),
            (
                "The {n} has to be repaired because it no longer works.",
                "{Le} doit être [réparé|réparée] parce qu'{il} ne fonctionne plus.",
            ),
            ("Where is the {n}? It was here yesterday.", "Où est {le} ? {Il} était ici hier."),
            ("I bought the {n} because it was cheap.", "J'ai acheté {le} parce qu'{il} était bon marché."),
            ("Do not touch the {n}. It is still hot.", "Ne touchez pas {le}. {Il} est encore [chaud|chaude]."),
        ],
    ),
    (
        [
            "bus bus, train train, scooter scooter, boat bateau, truck camion, "
            "bicycle vélo, ship navire, tractor tracteur",
            "car voiture, motorcycle moto, rocket fusée, van camionnette, cart charrette, "
            "sled luge, caravan caravane, limousine limousine",
        ],
        [
            ("The {n} is old, but it is still fast.", "{Le} est [vieux|vieille], mais {il} est encore rapide."),
            (
                "The {n} stopped because it was damaged.",
                "{Le} s'est [arrêté|arrêtée] parce qu'{il} était [endommagé|endommagée].",
            ),
            ("Look at the {n}! It is coming towards us.", "Regarde {le} ! {Il} vient vers nous."),
            ("The {n} is late because it broke down.", "{Le} est en retard parce qu'{il} est [tombé|tombée] en panne."),
            (
                "If the {n} is too slow, it will be replaced.",
                "Si {le} est trop [lent|lente], {il} sera [remplacé|remplacée].",
            ),
            ("When the {n} arrived, it was empty.", "Quand {le} est [arrivé|arrivée], {il} était vide."),
        ],
    ),
    (
        [
            "book livre, newspaper journal, film film, poem poème, report rapport, dictionary dictionnaire, "
            "painting tableau, contract contrat",
            "letter lettre, song chanson, photo photo, list liste, map carte, sentence phrase, "
            "magazine revue, brochure brochure",
        ],
        [
            ("The {n} is famous because it is very old.", "{Le} est célèbre parce qu'{il} est très [ancien|ancienne]."),
            ("I like the {n} because it is funny.", "J'aime {le} parce qu'{il} est drôle."),
            ("The {n} is on the table. It is for you.", "{Le} est sur la table. {Il} est pour toi."),
            (
                "I do not understand the {n} because it is too complicated.",
                "Je ne comprends pas {le} parce qu'{il} est trop [compliqué|compliquée].",
            ),
            (
                "The {n} is short, but it is interesting.",
                "{Le} est [court|courte], mais {il} est [intéressant|intéressante].",
            ),
            ("Have you seen the {n}? It disappeared this morning.", "As-tu vu {le} ? {Il} a disparu ce matin."),
        ],
    ),
    (
        [
            "coat manteau, hat chapeau, sweater pull, bracelet bracelet, scarf foulard, "
            "T-shirt T-shirt, suit costume, glove gant",
            "jacket veste, shirt chemise, skirt jupe, tie cravate, dress robe, "
            "ring bague, cap casquette, shoe chaussure",
        ],
        [
            (
                "I cannot wear the {n} because it is too small.",
                "Je ne peux pas porter {le} parce qu'{il} est trop [petit|petite].",
            ),
            ("The {n} is dirty. It has to be washed.", "{Le} est sale. {Il} doit être [lavé|lavée]."),
            ("The {n} looks nice, but it does not suit me.", "{Le} est [joli|jolie], mais {il} ne me va pas."),
            ("I like the {n} because it is red.", "J'aime {le} parce qu'{il} est rouge."),
            ("Whose is the {n}? It was on the chair.", "À qui est {le} ? {Il} était sur la chaise."),
            ("If the {n} is too expensive, it will not sell.", "Si {le} est trop [cher|chère], {il} ne se vendra pas."),
        ],
    ),
    (
        [
            "bridge pont, village village, lake lac, park parc, castle château, "
            "museum musée, garden jardin, desert désert",
            "river rivière, mountain montagne, beach plage, cave grotte, valley vallée, "
            "house maison, street rue, tower tour",
        ],
        [
            (
                "The {n} is well known because it is so large.",
                "{Le} est [connu|connue] parce qu'{il} est si [grand|grande].",
            ),
            (
                "The {n} is hard to reach, but it is worth a visit.",
                "{Le} est difficile à atteindre, mais {il} vaut le détour.",
            ),
            ("Do you know the {n}? It is not far from here.", "Connaissez-vous {le} ? {Il} n'est pas loin d'ici."),
            ("When we saw the {n}, it was deserted.", "Quand nous avons vu {le}, {il} était [désert|déserte]."),
            (
                "Tourists avoid the {n} because it is dangerous.",
                "Les touristes évitent {le} parce qu'{il} est [dangereux|dangereuse].",
            ),
            ("The {n} is small, but it is beautiful.", "{Le} est [petit|petite], mais {il} est magnifique."),
        ],
    ),
]

# The two nouns; English and French with {why}; then, for each noun that may be meant, its gender and both reasons.
HARD: list[tuple[str, str, str, tuple[str, str, str], tuple[str, str, str]]] = [
    (
        "animal, rue",
        "The animal did not cross the street because it {why}.",
        "L'animal n'a pas traversé la rue parce qu'{why}.",
        ("masculine", "was too tired", "{il} était trop [fatigué|fatiguée]"),
        ("feminine", "was too wide", "{il} était trop large"),
    ),
    (
        "trophée, valise",
        "The trophy did not fit into the suitcase because it {why}.",
        "Le trophée n'entrait pas dans la valise parce qu'{why}.",
        ("masculine", "was too big", "{il} était trop [grand|grande]"),
        ("feminine", "was too small", "{il} était trop [petit|petite]"),
    ),
    (
        "tableau, caisse",
        "The painting did not fit into the crate because it {why}.",
        "Le tableau n'entrait pas dans la caisse parce qu'{why}.",
        ("masculine", "was too big", "{il} était trop [grand|grande]"),
        ("feminine", "was too small", "{il} était trop [petit|petite]"),
    ),
    (
        "ballon, vitre",
        "The ball broke the window because it {why}.",
        "Le ballon a cassé la vitre parce qu'{why}.",
        ("masculine", "was so hard", "{il} était si [dur|dure]"),
        ("feminine", "was so thin", "{il} était si mince"),
    ),
    (
        "chien, clôture",
        "The dog did not jump over the fence because it {why}.",
        "Le chien n'a pas sauté par-dessus la clôture parce qu'{why}.",
        ("masculine", "was too old", "{il} était trop [vieux|vieille]"),
        ("feminine", "was too high", "{il} était trop [haut|haute]"),
    ),
    (
        "vache, lait",
        "The cow did not give the milk because it {why}.",
        "La vache n'a pas donné le lait parce qu'{why}.",
        ("feminine", "was sick", "{il} était malade"),
        ("masculine", "was sour", "{il} était aigre"),
    ),
    (
        "souris, fromage",
        "The mouse did not eat the cheese because it {why}.",
        "La souris n'a pas mangé le fromage parce qu'{why}.",
        ("feminine", "was not hungry", "{il} n'avait pas faim"),
        ("masculine", "was rotten", "{il} était [pourri|pourrie]"),
    ),
    (
        "camion, route",
        "The truck could not drive along the road because it {why}.",
        "Le camion ne pouvait pas emprunter la route parce qu'{why}.",
        ("masculine", "had a flat tyre", "{il} avait un pneu crevé"),
        ("feminine", "was flooded", "{il} était [inondé|inondée]"),
    ),
    (
        "voiture, tunnel",
        "The car could not drive through the tunnel because it {why}.",
        "La voiture ne pouvait pas traverser le tunnel parce qu'{why}.",
        ("feminine", "was too wide", "{il} était trop large"),
        ("masculine", "was too narrow", "{il} était trop [étroit|étroite]"),
    ),
    (
        "bateau, rivière",
        "The boat could not go up the river because it {why}.",
        "Le bateau ne pouvait pas remonter la rivière parce qu'{why}.",
        ("masculine", "had lost its engine", "{il} avait perdu son moteur"),
        ("feminine", "was frozen", "{il} était [gelé|gelée]"),
    ),
    (
        "table, couloir",
        "The table did not fit through the corridor because it {why}.",
        "La table ne passait pas par le couloir parce qu'{why}.",
        ("feminine", "was too wide", "{il} était trop large"),
        ("masculine", "was too narrow", "{il} était trop [étroit|étroite]"),
    ),
    (
        "clé, cadenas",
        "The key did not open the padlock because it {why}.",
        "La clé n'ouvrait pas le cadenas parce qu'{why}.",
        ("feminine", "was bent", "{il} était [tordu|tordue]"),
        ("masculine", "was frozen", "{il} était [gelé|gelée]"),
    ),
    (
        "souris, trou",
        "The mouse could not get into the hole because it {why}.",
        "La souris ne pouvait pas entrer dans le trou parce qu'{why}.",
        ("feminine", "was too fat", "{il} était trop [gros|grosse]"),
        ("masculine", "was too small", "{il} était trop [petit|petite]"),
    ),
    (
        "lapin, cage",
        "The rabbit did not leave the cage because it {why}.",
        "Le lapin n'a pas quitté la cage parce qu'{why}.",
        ("masculine", "was afraid", "{il} avait peur"),
        ("feminine", "was locked", "{il} était [fermé|fermée] à clé"),
    ),
    (
        "lampe, salon",
        "The lamp did not light up the living room because it {why}.",
        "La lampe n'éclairait pas le salon parce qu'{why}.",
        ("feminine", "was broken", "{il} était [cassé|cassée]"),
        ("masculine", "was too big", "{il} était trop [grand|grande]"),
    ),
    (
        "canapé, chambre",
        "The sofa did not fit into the bedroom because it {why}.",
        "Le canapé n'entrait pas dans la chambre parce qu'{why}.",
        ("masculine", "was too big", "{il} était trop [grand|grande]"),
        ("feminine", "was too small", "{il} était trop [petit|petite]"),
    ),
    (
        "photo, cadre",
        "The photo did not fit into the frame because it {why}.",
        "La photo n'entrait pas dans le cadre parce qu'{why}.",
        ("feminine", "was too big", "{il} était trop [grand|grande]"),
        ("masculine", "was too small", "{il} était trop [petit|petite]"),
    ),
    (
        "cheval, charrette",
        "The horse could not pull the cart because it {why}.",
        "Le cheval ne pouvait pas tirer la charrette parce qu'{why}.",
        ("masculine", "was too weak", "{il} était trop faible"),
        ("feminine", "was too heavy", "{il} était trop [lourd|lourde]"),
    ),
    (
        "chat, porte",
        "The cat did not go through the door because it {why}.",
        "Le chat n'est pas passé par la porte parce qu'{why}.",
        ("masculine", "was asleep", "{il} dormait"),
        ("feminine", "was closed", "{il} était [fermé|fermée]"),
    ),
    (
        "train, gare",
        "The train did not stop at the station because it {why}.",
        "Le train ne s'est pas arrêté à la gare parce qu'{why}.",
        ("masculine", "was late", "{il} était en retard"),
        ("feminine", "was closed", "{il} était [fermé|fermée]"),
    ),
]


def _with_noun(text: str, gender: str, noun: str) -> str:
    named = f"{ARTICLE[gender]} {noun}"
    return text.replace("{le}", named).replace("{Le}", named[0].upper() + named[1:])


def _with_pronoun(text: str, noun_gender: str, gender: str) -> str:
    """Insert the pronoun of a gender. Words before it agree with the noun, later ones with the pronoun."""
    at = re.search(r"\{[iI]l\}", text)
    assert at, text
    before, after = (
        re.sub(r"\[(\w+)\|(\w+)\]", rf"\{1 + GENDERS.index(agreeing)}", part)
        for part, agreeing in ((text[: at.start()], noun_gender), (text[at.end() :], gender))
    )
    word = PRONOUN[gender]
    return before + (word.capitalize() if at[0] == "{Il}" else word) + after


def make() -> list[Item]:
    """Return all French sentences."""
    return make_items(CLASSES, HARD, GENDERS, _with_noun, _with_pronoun)


if __name__ == "__main__":
    FILES["fr"].write_text(to_text(make()), encoding="utf-8")
