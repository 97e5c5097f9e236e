"""Metrics for Prometheus: latencies, queue lengths, batch sizes."""

import os
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    generate_latest,
    multiprocess,
)

from onehop.server.temporary import is_alive

SHARED_FOLDER = "PROMETHEUS_MULTIPROC_DIR"  # where several processes share their metrics
CONTENT_TYPE = CONTENT_TYPE_LATEST

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)
_SIZES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
_TOKENS = (8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096)


class Metrics:
    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        if SHARED_FOLDER not in os.environ:
            ProcessCollector(registry=registry)
        self.requests = Counter("onehop_requests", "Answers given", ["path", "status"], registry=registry)
        self.seconds = self.histogram(
            "onehop_request_seconds", "From a request's head to its answer", _SECONDS, ["path"]
        )
        self.running = self.gauge("onehop_requests_running", "Requests in progress")
        self.waiting = self.gauge("onehop_queue_sentences", "Sentences in the queue")
        self.waiting_tokens = self.gauge("onehop_queue_tokens", "Source tokens in the queue")
        self.queue_seconds = self.histogram("onehop_queue_seconds", "Time of a sentence in the queue", _SECONDS)
        self.batch_sentences = self.histogram("onehop_batch_sentences", "Sentences decoded together", _SIZES)
        self.batch_tokens = self.histogram("onehop_batch_tokens", "Source tokens decoded together", _TOKENS)
        self.batch_seconds = self.histogram("onehop_batch_seconds", "Time of a batch", _SECONDS)
        self.step_sentences = self.histogram("onehop_step_sentences", "Sentences decoded together in one step", _SIZES)
        self.tokens = Counter("onehop_tokens", "Tokens translated", ["side"], registry=registry)
        self.dropped = Counter("onehop_dropped_sentences", "Sentences of cancelled requests", registry=registry)
        self.dropped_lines = Counter("onehop_dropped_log_lines", "Lines that could not be logged", registry=registry)

    def gauge(self, name: str, text: str) -> Gauge:
        """A gauge that is summed over processes."""
        return Gauge(name, text, registry=self.registry, multiprocess_mode="livesum")

    def histogram(self, name: str, text: str, buckets: tuple[float, ...], labels: Sequence[str] = ()) -> Histogram:
        return Histogram(name, text, labels, buckets=buckets, registry=self.registry)

    def exposition(self) -> bytes:
        """The text that Prometheus reads, of this process or of all that share a folder."""
        if SHARED_FOLDER not in os.environ:
            return generate_latest(self.registry)
        # The values of dead processes must not be part of the sums.
        for file in Path(os.environ[SHARED_FOLDER]).glob("gauge_live*_*.db"):
            if not is_alive(pid := int(file.stem.rpartition("_")[2])):
                with suppress(FileNotFoundError):  # another process has deleted it
                    multiprocess.mark_process_dead(pid, os.environ[SHARED_FOLDER])  # type: ignore[no-untyped-call]
        together = CollectorRegistry()
        multiprocess.MultiProcessCollector(together)  # type: ignore[no-untyped-call]
        return generate_latest(together)
