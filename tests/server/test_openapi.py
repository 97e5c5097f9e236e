"""schemathesis generates valid and invalid requests and compares every answer with the OpenAPI description."""

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    response_schema_conformance,
    status_code_conformance,
)
from serving import Process

from onehop.server.app import Application
from onehop.server.metrics import Metrics
from onehop.server.openapi import OPERATIONS
from onehop.server.settings import ServerSettings

CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
    negative_data_rejection,
]
OPTIONS = {"deadline": None, "suppress_health_check": list(HealthCheck), "derandomize": True}


@pytest.fixture(scope="module")
def described(model_file):
    limits = ("max_sentences=40", "max_beam=4", "max_n_best=4")
    server = Process(model_file, *(part for limit in limits for part in ("--set", limit)))
    yield schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    server.stop()
    assert "Traceback" not in "".join(server.errors)


@pytest.mark.parametrize("mode", [GenerationMode.POSITIVE, GenerationMode.NEGATIVE])
@pytest.mark.parametrize("operation", [o for o in OPERATIONS if o.body], ids=lambda o: o.path)
def test_answers_to_generated_requests_match_the_description(described, operation, mode):
    strategy = described[operation.path][operation.method].as_strategy(generation_mode=mode)

    @given(case=strategy)
    @settings(max_examples=30, **OPTIONS)
    def ask(case):
        case.call_and_validate(checks=CHECKS)

    ask()


@pytest.mark.parametrize("operation", [o for o in OPERATIONS if not o.body], ids=lambda o: o.path)
def test_routes_without_body_match_the_description(described, operation):
    path = {"path_parameters": {"name": "x"}} if "{name}" in operation.path else {}
    described[operation.path][operation.method].Case(**path).call_and_validate(checks=CHECKS[:4])


def test_every_path_is_described(described):
    served = {
        route.path for route in Application([], ServerSettings(), Metrics()).routes() if hasattr(route, "methods")
    }
    assert served - {"/", "/openapi.json", "/spec", "/docs"} == {operation.path for operation in OPERATIONS}
