"""What the heads of a trained model do, and how many of them it needs: the paper's remarks on heads, measured."""

from collections.abc import Sequence
from typing import Any

from onehop.experiments.heads import patterns
from onehop.experiments.provenance import COLOURS, Json, markdown, new_figure
from onehop.experiments.pruning import pruning
from onehop.interpret.tracer import Tracer

# A head follows a pattern when it does so in so large a share of the sentences.
OFTEN = 0.5


def heads(tracer: Tracer, sources: Sequence[str], references: Sequence[str]) -> Json:
    """Patterns over the sentences, and scores of their translations with ever fewer heads."""
    return {"patterns": patterns(tracer, sources), "pruning": pruning(tracer, sources, references)}


def table_text(found: Json) -> str:
    """Who follows which pattern, then the scores."""
    header = ["pattern", "stack", "sentences", "heads that follow it", "best head", "its share", "its weight", "chance"]
    rows = [pattern_row(pattern) for pattern in found["patterns"]["patterns"]]
    scores = [
        [
            str(row["removed"]),
            f"{row['removed'] / found['pruning']['heads']:.0%}",
            f"{row['bleu']:.1f}",
            f"{row['chrf']:.1f}",
        ]
        for row in found["pruning"]["rows"]
    ]
    return markdown(header, rows) + "\n" + markdown(["heads removed", "share", "BLEU", "chrF2++"], scores)


def pattern_row(pattern: Json) -> list[str]:
    """One pattern; layers and heads count from 1."""
    best, every = pattern["heads"][0], [share for layer in pattern["all"] for share in layer]
    follow = sum(share > OFTEN for share in every)
    return [
        pattern["name"],
        pattern["role"],
        str(pattern["sentences"]),
        f"{follow} of {len(every)}",
        f"{best['layer'] + 1}.{best['head'] + 1}",
        f"{best['share']:.0%}",
        f"{best['weight']:.2f}",
        f"{pattern['chance']:.2f}",
    ]


def picture(found: Json) -> Any:
    """The best heads of each pattern, and quality by the share of heads removed."""
    figure, (bars, curve) = new_figure(2)
    listed = found["patterns"]["patterns"][::-1]
    bars.barh(
        [f"{p['name']} ({p['role']})" for p in listed], [p["heads"][0]["share"] for p in listed], color=COLOURS[0]
    )
    bars.set_xlim(0, 1)
    bars.set_title("share of sentences in which the best head follows it", fontsize=10, loc="left")
    rows, total = found["pruning"]["rows"], found["pruning"]["heads"]
    shares = [row["removed"] / total for row in rows]
    curve.plot(shares, [row["bleu"] for row in rows], color=COLOURS[0], marker=".", label="BLEU")
    curve.plot(shares, [row["chrf"] for row in rows], color=COLOURS[1], marker=".", label="chrF2++")
    curve.set_ylim(bottom=0)
    curve.set_xlabel("share of heads removed, the least important first")
    curve.legend(frameon=False)
    return figure
