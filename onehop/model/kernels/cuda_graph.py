"""Work recorded once as a CUDA graph and then replayed, which saves the time of launching kernel after kernel."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

Results = TypeVar("Results")


def warm_up(work: Callable[[], object], times: int, device: torch.device | None = None) -> None:
    """Run work on a stream of its own: libraries and kernels make ready what a recording forbids."""
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(times):
            work()
    torch.cuda.current_stream(device).wait_stream(side)


class CudaGraph(Generic[Results]):
    """Work on tensors that stay in their place, as a CUDA graph; several graphs may share a pool of memory."""

    def __init__(self, work: Callable[[], Results], pool: Any = None) -> None:
        self.graph = torch.cuda.CUDAGraph()
        # Other threads may go on using the GPU meanwhile.
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.results = work()

    def replay(self) -> Results:
        """Do the work again on what the tensors hold now; the results are overwritten each time."""
        self.graph.replay()
        return self.results
