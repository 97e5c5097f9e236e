"""A tracer and an explorer over a model with random weights."""

import pytest
from page_data import TEXT
from starlette.applications import Starlette
from starlette.testclient import TestClient

from onehop.explorer.content import Explorer
from onehop.explorer.routes import explorer_routes
from onehop.interpret.tracer import Tracer


@pytest.fixture(scope="module", autouse=True)
def short_outputs():
    """Models with random weights seldom predict EOS, so outputs are limited to a few tokens."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("onehop.decoding.engine.MORE_THAN_SOURCE", 3)
        yield


@pytest.fixture(scope="module")
def tracer(model_file):
    return Tracer.load(model_file, "cpu")


@pytest.fixture(scope="module")
def explorer(tracer):
    return Explorer(tracer, TEXT)


@pytest.fixture(scope="module")
def client(explorer):
    return TestClient(Starlette(routes=explorer_routes(lambda: explorer)))
