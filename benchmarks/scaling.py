"""Calculate the speed on several GPUs from one that was measured: `python benchmarks/scaling.py`.

Nothing here was run on more than one GPU. A step of N processes is modelled as the measured step of one GPU plus
the all-reduce of the gradients. The backward pass hides as much of it as fits (best case) or nothing (worst case).
The link rates are assumptions, below what their makers state.
"""

from collections.abc import Iterator
from dataclasses import dataclass

# docs/results/training-speed.md, “On a GPU”: the base shape, 37,000 pieces, one H200, at most 25,600 tokens a batch.
TOKENS = 24_840
STEP_SECONDS = 0.0252
BACKWARD = 2 / 3  # of a step: two of its three matrix products for each weight
GRADIENT_BYTES = 4  # gradients are float32
MODELS = {
    "base, 16,000 pieces": 52_293_632,
    "base, 37,000 pieces": 63_045_632,
    "big, 37,000 pieces": 214_171_648,
}


@dataclass(frozen=True)
class Cluster:
    """GPUs and the slowest link that a ring through all of them crosses."""

    name: str
    gpus: int
    bytes_per_second: float


CLUSTERS = [
    Cluster("1 machine, 2 GPUs, NVLink at 300 GB/s", 2, 300e9),
    Cluster("1 machine, 8 GPUs, NVLink at 300 GB/s", 8, 300e9),
    Cluster("2 machines of 8, 40 GB/s for each GPU", 16, 40e9),
    Cluster("8 machines of 8, 40 GB/s for each GPU", 64, 40e9),
    Cluster("2 machines of 8, one 100 Gb/s cable at 10 GB/s", 16, 10e9),
    Cluster("2 machines of 1, 10 Gb/s at 1 GB/s", 2, 1e9),
]


def ring_bytes(parameters: int, gpus: int) -> float:
    """Return the bytes that each GPU sends in a step: a ring passes on every gradient twice, except its own share."""
    return 2 * (gpus - 1) / gpus * parameters * GRADIENT_BYTES


def sharded_bytes(parameters: int, gpus: int) -> float:
    """Return the same under FSDP2: weights gathered in both passes, gradients scattered once."""
    return 3 * (gpus - 1) / gpus * parameters * GRADIENT_BYTES


def rates(cluster: Cluster, parameters: int) -> tuple[float, float]:
    """Return target tokens per second if the all-reduce is hidden as far as possible, and if nothing is hidden."""
    sending = ring_bytes(parameters, cluster.gpus) / cluster.bytes_per_second
    shown = max(0.0, sending - BACKWARD * STEP_SECONDS)
    tokens = TOKENS * cluster.gpus
    return tokens / (STEP_SECONDS + shown), tokens / (STEP_SECONDS + sending)


def byte_rows() -> Iterator[str]:
    """Return rows with the megabytes that each of eight GPUs sends in a step."""
    for name, parameters in MODELS.items():
        size = parameters * GRADIENT_BYTES / 1e6
        ring, sharded = ring_bytes(parameters, 8) / 1e6, sharded_bytes(parameters, 8) / 1e6
        yield f"| {name} | {parameters:,} | {size:,.0f} | {ring:,.0f} | {sharded:,.0f} |"


def rate_rows() -> Iterator[str]:
    """Return rows with millions of target tokens per second, and the share of as many single GPUs."""
    parameters = MODELS["base, 37,000 pieces"]
    for cluster in CLUSTERS:
        best, worst = rates(cluster, parameters)
        alone = cluster.gpus * TOKENS / STEP_SECONDS
        sending = ring_bytes(parameters, cluster.gpus) / cluster.bytes_per_second * 1e3
        yield (
            f"| {cluster.name} | {sending:,.1f} | {best / 1e6:.1f} ({best / alone:.0%}) "
            f"| {worst / 1e6:.1f} ({worst / alone:.0%}) |"
        )


if __name__ == "__main__":
    print("\n".join([*byte_rows(), "", *rate_rows()]))
