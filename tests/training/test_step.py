"""Parts of a training step: the low-precision copy, the update that skips NaN, and CUDA graphs."""

import copy
import math
import os
import subprocess
import sys

import pytest
import torch
from torch import nn

from onehop.config import ModelSettings, TrainSettings
from onehop.model.transformer import Tokens, Transformer
from onehop.training import step
from onehop.training.cuda_step import BFloat16Twin, copy_all
from onehop.training.dataloader import DeviceBatch, to_device
from onehop.training.distributed import World
from onehop.training.estimate import example_batch
from onehop.training.optimizer import make_optimizer, set_rate
from onehop.training.step import Objective, apply_gradients, update_if_finite

SHAPE = {"n_encoder_layers": 1, "n_decoder_layers": 2, "d_model": 16, "d_ff": 32, "n_heads": 2, "dropout": 0.0}


def an_objective(**settings: object) -> Objective:
    torch.manual_seed(1)
    return Objective(Transformer(ModelSettings(**SHAPE, **settings), 20), 0.1, 0.0)


def a_batch() -> DeviceBatch:
    draw = torch.Generator().manual_seed(2)
    src, tgt = (torch.randint(4, 20, (9,), generator=draw) for _ in range(2))
    lengths, others = torch.tensor([4, 5]), torch.tensor([6, 3])
    return DeviceBatch(
        Tokens.packed(src, lengths), Tokens.packed(tgt, others), torch.randint(4, 20, (9,), generator=draw)
    )


# --- the dtype of a CPU ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("device", "cpu_dtype", "instructions", "dtype"),
    [
        ("cpu", None, True, torch.float32),
        ("cpu", "float32", True, torch.float32),
        ("cpu", "bfloat16", False, torch.bfloat16),
        ("cpu", "auto", True, torch.bfloat16),
        ("cpu", "auto", False, torch.float32),
        ("cuda", "float32", False, torch.bfloat16),
    ],
)
def test_the_dtype_of_products_follows_from_the_device_and_the_setting(
    monkeypatch, device, cpu_dtype, instructions, dtype
):
    monkeypatch.setattr(step, "fast_bfloat16", lambda: instructions)
    assert step.training_dtype(TrainSettings(cpu_dtype=cpu_dtype), torch.device(device)) is dtype


@pytest.mark.parametrize("r_drop", [0.0, 1.0])
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_bfloat16_products_on_a_cpu_give_the_gradients_of_float32(norm, r_drop):
    gradients = {}
    for dtype in (torch.float32, torch.bfloat16):
        objective = an_objective(norm=norm)
        objective.dtype, objective.r_drop = dtype, r_drop
        batch = to_device(example_batch(96, 12, 20), World(0, 1, torch.device("cpu")), twice=r_drop > 0)
        loss, nll = objective(batch)
        loss.backward()
        assert loss.dtype == nll.dtype == torch.float32
        gradients[dtype] = [loss.detach()[None], *(p.grad.flatten() for p in objective.parameters())]
        assert all(p.grad.dtype == torch.float32 for p in objective.parameters())
    exact, rounded = (torch.cat(parts) for parts in gradients.values())
    assert not torch.equal(exact, rounded)
    assert (exact - rounded).norm() < 0.03 * exact.norm()


# --- the low-precision copy -----------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [True, False])
def test_the_low_precision_copy_computes_the_same_as_the_model(tied):
    objective = an_objective(tied=tied, attention_bias=True)
    twin = BFloat16Twin(objective, torch.float32)
    with torch.no_grad():  # after the copy was made: the copy must take the present weights
        for p in objective.parameters():
            p.mul_(1.1)
    value, _ = objective(a_batch())
    value.backward()
    expected = {name: p.grad for name, p in objective.named_parameters()}
    objective.zero_grad()
    twin.take_weights()
    again, _ = twin.objective(a_batch())
    again.backward()
    twin.give_gradients()
    assert torch.equal(value, again)
    for name, p in objective.named_parameters():
        torch.testing.assert_close(p.grad, expected[name])


@pytest.mark.parametrize("tied", [True, False])
def test_only_inner_linear_layers_are_in_low_precision(tied):
    model = an_objective(tied=tied).model
    twin = BFloat16Twin(Objective(model, 0.1, 0.0)).objective.model
    assert twin.output_weight is model.output_weight
    short = {name for name, p in twin.named_parameters() if p.dtype == torch.bfloat16}
    linear = [(path, module) for path, module in model.named_modules() if isinstance(module, nn.Linear)]
    inside = [f"{path}.{name}" for path, module in linear for name, _ in module.named_parameters() if path != "output"]
    assert short == set(inside)
    own, theirs = dict(twin.named_parameters()), dict(model.named_parameters())
    assert all(own[name] is p for name, p in theirs.items() if name not in short)
    assert twin.source_input.positions is model.source_input.positions
    assert all(p.dtype == torch.float32 for p in model.parameters())


def test_gradients_of_the_low_precision_copy_are_not_accumulated():
    objective = an_objective()
    twin = BFloat16Twin(objective, torch.float32)
    found = []
    for _ in range(2):
        twin.take_weights()
        twin.objective(a_batch())[0].backward()
        twin.give_gradients()
        found.append([p.grad.clone() for p in twin.masters])
    assert all(torch.equal(a, b) for a, b in zip(*found, strict=True))


def test_a_layer_that_is_not_used_gets_no_gradient():
    objective = an_objective()
    objective.model.idle = nn.Linear(2, 2)
    twin = BFloat16Twin(objective, torch.float32)
    twin.take_weights()
    twin.objective(a_batch())[0].backward()
    twin.give_gradients()
    assert {name for name, p in objective.named_parameters() if p.grad is None} == {
        "model.idle.weight",
        "model.idle.bias",
    }


# --- the update -----------------------------------------------------------------------------------------------


def an_optimizer(model: nn.Module) -> torch.optim.Optimizer:
    optimizer = make_optimizer(model, TrainSettings())
    set_rate(optimizer, 1e-2)
    return optimizer


def state_of(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[torch.Tensor]:
    moments = [value for p in model.parameters() for value in optimizer.state[p].values()]
    return [tensor.detach().clone() for tensor in (*model.parameters(), *moments)]


def give(model: nn.Module, value: float) -> torch.Tensor:
    for p in model.parameters():
        p.grad = torch.full_like(p, value)
    return torch.tensor(value)


@pytest.mark.parametrize("clip", [0.0, 1.0])
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_nonfinite_update_leaves_the_weights_unchanged(bad, clip):
    model = nn.Linear(3, 3)
    optimizer = an_optimizer(model)
    update_if_finite(model, optimizer, clip, give(model, 0.5), torch.tensor([1.0, 1.0, 0.5]))
    before = state_of(model, optimizer)
    update_if_finite(model, optimizer, clip, give(model, bad), torch.tensor([1.0, 1.0, bad]))
    assert all(torch.equal(a, b) for a, b in zip(before, state_of(model, optimizer), strict=True))


def test_a_finite_update_equals_the_plain_update():
    one = nn.Linear(3, 3)
    other = copy.deepcopy(one)
    optimizers = [an_optimizer(one), an_optimizer(other)]
    for value in (0.5, -0.2):
        update_if_finite(one, optimizers[0], 0.1, give(one, value), torch.tensor([1.0, 1.0, value]))
        apply_gradients(other, optimizers[1], 0.1, give(other, value))
    pairs = zip(state_of(one, optimizers[0]), state_of(other, optimizers[1]), strict=True)
    assert all(torch.equal(a, b) for a, b in pairs)


def test_tensors_of_several_types_are_copied():
    given = [torch.tensor([1, 2]), torch.tensor([3], dtype=torch.int32), torch.tensor([4.0]), torch.tensor([5])]
    into = [torch.zeros_like(tensor) for tensor in given]
    copy_all(into, given)
    assert all(torch.equal(a, b) for a, b in zip(into, given, strict=True))


# --- the whole step, on a GPU ---------------------------------------------------------------------------------


RECORDED = """
import copy, math, torch
from onehop.config import ModelSettings, TrainSettings
from onehop.training.dataloader import DeviceBatch, tensors_of
from onehop.model import kernels
from onehop.model.transformer import Tokens, Transformer
from onehop.training.step import Objective, forward_and_backward, gradient_norm, apply_gradients
from onehop.training.cuda_step import RecordedStep
from onehop.training.optimizer import make_optimizer, set_rate

torch.manual_seed(1)
shape = ModelSettings(n_encoder_layers=2, n_decoder_layers=2, d_model=64, d_ff=128, n_heads=4, dropout=0.0, norm=NORM)
one = Objective(kernels.fuse(Transformer(shape, 100)), 0.1, 0.0).cuda().train()
other = copy.deepcopy(one)
lengths, others = torch.tensor([3, 9, 100, 1]), torch.tensor([4, 5, 90, 14])
def fed():
    tokens = lambda n: Tokens.packed(torch.randint(4, 100, (113,)).cuda(), n.cuda(), 128)
    return DeviceBatch(tokens(lengths), tokens(others), torch.randint(1, 100, (113,)).cuda())
mine, theirs = (make_optimizer(x.model, TrainSettings(), capturable=True) for x in (one, other))
first = fed()
step = RecordedStep(one, mine, 0.0, first)
for at in range(6):
    batch = first if at == 0 else fed()
    set_rate(mine, 1e-3), set_rate(theirs, 1e-3)
    found = forward_and_backward(other, batch, 1 / 113)
    norm = gradient_norm(other.model)
    step.run(batch, 1 / 113)
    numbers = step.settle()
    for a, b in zip(numbers, (found.objective, found.nll, norm), strict=True):
        assert abs(a / float(b) - 1) < 0.03, (at, numbers, found, norm)
    apply_gradients(other.model, theirs, 0.0, norm)
before = [p.detach().clone() for p in one.parameters()]
step.run(fed(), math.inf)
assert not all(map(math.isfinite, step.settle()))
torch.cuda.synchronize()
assert all(torch.equal(a, b) for a, b in zip(before, one.parameters(), strict=True))
step.run(fed(), 1 / 113)
assert all(map(math.isfinite, step.settle()))
torch.cuda.synchronize()
assert not any(torch.equal(a, b) for a, b in zip(before, one.parameters(), strict=True))
"""


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("norm", ["post", "pre"])
def test_cuda_graph_steps_equal_plain_steps(norm):
    """In a separate process, because the tests' shape checks cannot be compiled."""
    environment = {**os.environ, "TRITON_INTERPRET": "0"}
    code = RECORDED.replace("NORM", repr(norm))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
