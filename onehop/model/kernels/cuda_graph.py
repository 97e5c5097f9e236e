"""Work captured once as a CUDA graph and then replayed, which saves the launch of each kernel."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

Results = TypeVar("Results")


def warm_up(work: Callable[[], object], times: int, device: torch.device | None = None) -> None:
    """Run work on a side stream: libraries and kernels initialise what a capture forbids."""
    side = torch.cuda.Stream(device)
    side.wait_stream(torch.cuda.current_stream(device))
    with torch.cuda.stream(side):
        for _ in range(times):
            work()
    torch.cuda.current_stream(device).wait_stream(side)


class CudaGraph(Generic[Results]):
    """Work on tensors with fixed addresses, as a CUDA graph. Several graphs may share a memory pool."""

    def __init__(self, work: Callable[[], Results], pool: Any = None) -> None:
        self.graph = torch.cuda.CUDAGraph()
        # Other threads may use the GPU meanwhile.
        with torch.cuda.graph(self.graph, pool=pool, capture_error_mode="thread_local"):
            self.results = work()

    def replay(self) -> Results:
        """Repeat the work on the tensors' present values. The results are overwritten each time."""
        self.graph.replay()
        return self.results
