"""Check that terms, names, the form of address and short strings are translated as required.

    python benchmarks/faithful.py terms heldout names formality short --model en-de -o results/faithful/en-de.json

- terms: the lines of terms.tsv, each with a term or a word to keep. A term is met if the translation has it as whole
  words; words of a glossary may be inflected (`Term.met`). "before" takes the best hypothesis of the beam that has the
  term, without tags and a second search. Other directions have their own files, such as terms-en-fr.tsv.
- heldout: the same for terms_heldout.tsv, which was written after the rules were fixed. English to German only.
- names: each name of names.txt in one of 20 frames of the source language. A name is kept if it is in the translation
  unchanged; a genitive s is allowed. "before" is the translation without a second search.
- names_sample: the same with every third name, for a busy machine.
- names_heldout: 100 other names in ten other frames, which were written after the rules were fixed. English only.
- formality: sentences that address the reader, with and without --formality, and a mail of ten sentences. It counts the
  formal and the informal ones, as `onehop.text.formality` classifies them.
- short: the lines of short_strings.tsv. A translation is right if it equals one of those given. German only.
"""

import argparse
import json
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

from onehop.decoding.options import SearchOptions
from onehop.pipelines.glossary import Term
from onehop.pipelines.sentence_translator import SentenceTranslator
from onehop.pipelines.translator import Translator
from onehop.text.formality import formality

HERE = Path(__file__).parent
FRAMES = {
    "en": """{} called me this morning.
Yesterday I met {} at the station.
Have you seen {}?
I gave the key to {} last week.
{} and I went to the same school.
"I am tired," said {}.
The letter was written by {}.
My neighbour {} has two dogs.
{} works in a hospital in London.
We are waiting for {} to come home.
Nobody knows where {} lives now.
Please tell {} that the meeting is over.
According to {}, the shop is closed.
{} was born in 1985.
I have not heard from {} for years.
The doctor asked {} to sit down.
{} bought a new car.
She danced with {} all night.
Thank you, {}, for your help.
This book belongs to {}.""",
    "de": """{} hat mich heute Morgen angerufen.
Gestern habe ich {} am Bahnhof getroffen.
Hast du {} gesehen?
Ich habe {} letzte Woche den Schlüssel gegeben.
{} und ich sind auf dieselbe Schule gegangen.
„Ich bin müde“, sagte {}.
Der Brief wurde von {} geschrieben.
Mein Nachbar {} hat zwei Hunde.
{} arbeitet in einem Krankenhaus in London.
Wir warten darauf, dass {} nach Hause kommt.
Niemand weiß, wo {} jetzt wohnt.
Bitte sag {}, dass die Besprechung vorbei ist.
Laut {} ist der Laden geschlossen.
{} wurde 1985 geboren.
Ich habe seit Jahren nichts von {} gehört.
Der Arzt bat {}, sich zu setzen.
{} hat ein neues Auto gekauft.
Sie tanzte die ganze Nacht mit {}.
Vielen Dank, {}, für Ihre Hilfe.
Dieses Buch gehört {}.""",
    "fr": """{} m'a appelé ce matin.
Hier, j'ai rencontré {} à la gare.
As-tu vu {} ?
J'ai donné la clé à {} la semaine dernière.
{} et moi sommes allés à la même école.
« Je suis fatigué », a dit {}.
La lettre a été écrite par {}.
Ma voisine {} a deux chiens.
{} travaille dans un hôpital à Londres.
Nous attendons que {} rentre à la maison.
Personne ne sait où {} habite maintenant.
Dites à {} que la réunion est terminée.
Selon {}, le magasin est fermé.
{} est né en 1985.
Je n'ai pas eu de nouvelles de {} depuis des années.
Le médecin a demandé à {} de s'asseoir.
{} a acheté une nouvelle voiture.
Elle a dansé avec {} toute la nuit.
Merci, {}, pour votre aide.
Ce livre appartient à {}.""",
}

# Frames for names_heldout.txt; English only.
OTHER_FRAMES = """{} has never been to Paris.
Where did {} put the scissors?
We invited {} and her brother to dinner.
I would like to talk to {} about it.
{} told us a long story.
Last year {} moved to another town.
It was {} who broke the window.
The police spoke with {} for an hour.
My aunt is older than {}.
{} wrote to me from the hospital."""


def rows_of(name: str) -> list[list[str]]:
    """Read the rows of a table without its header."""
    return [line.split("\t") for line in (HERE / name).read_text(encoding="utf-8").splitlines()[1:]]


def lines_of(name: str) -> list[str]:
    """Read the lines of a text."""
    return (HERE / name).read_text(encoding="utf-8").splitlines()


def terms(translator: Translator, plain: SentenceTranslator, file: str | None = None) -> dict[str, Any]:
    """Count the terms met without and with the feature."""
    pair = f"{translator.source}-{translator.target}"
    rows = rows_of(file or ("terms.tsv" if pair == "en-de" else f"terms-{pair}.tsv"))
    beams = plain.n_best([row[3] for row in rows], SearchOptions(n_best=4))
    lines = []
    for (kind, source, target, english), beam in zip(rows, beams, strict=True):
        term = Term(source, target or source, exact=kind == "keep")
        wish: dict[str, Any] = {"keep": [source]} if kind == "keep" else {"glossary": {source: target}}
        result = translator.translate(english, **wish)
        looped = any(s.n_best[0].looped for s in result.sentences)
        lines.append(
            {"source": english, "term": str(term), "text": result.text, "looped": looped, "plain": beam[0].text}
            | {"before": any(term.met(t.text) for t in beam), "met": term.met(result.text)}
        )
    counts = {key: sum(line[key] for line in lines) for key in ("before", "met", "looped")}
    return {"sentences": len(lines), **counts, "lines": lines}


def names(translator: Translator, plain: SentenceTranslator, file: str = "names.txt", step: int = 1) -> dict[str, Any]:
    """Count the names that are kept without and with the second search; `step` takes every step-th name."""
    every = [name for line in lines_of(file) for name in line.split()[1:]][::step]
    frames = (FRAMES[translator.source] if file == "names.txt" else OTHER_FRAMES).splitlines()
    texts = [frames[i % len(frames)].format(name) for i, name in enumerate(every)]
    before = [t.text for t in plain.translate(texts)]
    after = [result.text for result in translator.translate(texts)]

    def kept(name: str, text: str) -> bool:
        return re.search(rf"\b{name}(?:s|’|')?(?!\w)", text) is not None

    lost = [
        {"name": name, "before": one, "after": two}
        for name, one, two in zip(every, before, after, strict=True)
        if not kept(name, one) or not kept(name, two)
    ]
    return {
        "names": len(every),
        "kept_before": len(every) - sum(not kept(line["name"], line["before"]) for line in lost),
        "kept": len(every) - sum(not kept(line["name"], line["after"]) for line in lost),
        "lost": lost,
    }


def addresses(translator: Translator, plain: SentenceTranslator) -> dict[str, Any]:
    """Count formal and informal sentences, with and without the option."""
    found: dict[str, Any] = {}
    for name in ("formality.txt", "mail.txt"):
        texts, counts, written = lines_of(name), {}, {}
        for wanted in (None, "formal", "informal"):
            text = "\n".join(texts)
            result = translator.translate(text, formality=wanted)  # type: ignore[arg-type]
            lines = result.text.split("\n")
            counts[str(wanted)] = dict(Counter(str(formality(line, translator.target)) for line in lines))
            written[str(wanted)] = lines
        found[name] = {"sentences": len(texts), "counts": counts, "lines": written}
    return found


def short(translator: Translator, plain: SentenceTranslator) -> dict[str, Any]:
    """Count the short strings that are translated as given."""
    rows = rows_of("short_strings.tsv")
    results = translator.translate([english for _, english, _ in rows])
    wrong = [
        {"kind": kind, "source": english, "text": result.text, "accepted": accepted}
        for (kind, english, accepted), result in zip(rows, results, strict=True)
        if result.text not in accepted.split("|")
    ]
    return {"strings": len(rows), "right": len(rows) - len(wrong), "wrong": wrong}


PARTS = {
    "terms": terms,
    "heldout": partial(terms, file="terms_heldout.tsv"),
    "names": names,
    "names_sample": partial(names, step=3),
    "names_heldout": partial(names, file="names_heldout.txt"),
    "formality": addresses,
    "short": short,
}


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="+", choices=list(PARTS))
    parser.add_argument("--model", default="en-de")
    parser.add_argument("--threads", type=int)
    parser.add_argument("-o", "--out", type=Path, required=True, help="parts that the file has already are kept")
    args = parser.parse_args()
    translator = Translator(args.model, engine="ctranslate2", threads=args.threads)
    plain = SentenceTranslator.load(args.model, engine="ctranslate2", threads=args.threads)
    report = json.loads(args.out.read_text(encoding="utf-8")) if args.out.exists() else {"model": args.model}
    args.out.parent.mkdir(parents=True, exist_ok=True)
    for part in args.parts:
        report[part] = PARTS[part](translator, plain)
        args.out.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        shown = {key: value for key, value in report[part].items() if key not in ("lines", "lost", "wrong")}
        print(part, json.dumps(shown if part != "formality" else {k: v["counts"] for k, v in shown.items()}))


if __name__ == "__main__":
    main()
