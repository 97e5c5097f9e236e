"""The learning rate over time (section 5.3, equation 3 of the paper)."""

import math

from onehop.config import TrainSettings


def learning_rate(step: int, settings: TrainSettings, d_model: int) -> float:
    """Grows linearly for `warmup` steps to its peak, then falls. Steps count from 1.

    With the defaults this is the paper's d_model^-0.5 · min(step^-0.5, step · warmup^-1.5), whose peak is
    (d_model · warmup)^-0.5.
    """
    warmup = settings.warmup
    peak = settings.learning_rate or (d_model * warmup) ** -0.5
    if step <= warmup:
        return peak * step / warmup
    if settings.decay == "sqrt":
        return peak * math.sqrt(warmup / step)
    done = min(1.0, (step - warmup) / max(1, settings.steps - warmup))
    return peak * 0.5 * (1.0 + math.cos(math.pi * done))
