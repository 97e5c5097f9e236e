"""Which requests of browsers are refused."""

import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from starlette.testclient import TestClient

from onehop.explorer.routes import REFUSED, CrossOriginGuard

EVIL = {"Origin": "https://evil.example"}
LINK = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
ALLOWED = [
    ("POST", "/", {}),
    ("POST", "/", {"Sec-Fetch-Site": "same-origin", "Origin": "http://other.name.behind.a.proxy"}),
    ("GET", "/api", {"Sec-Fetch-Site": "none"}),
    ("POST", "/", {"Origin": "http://localhost:5000"}),
    ("GET", "/", LINK),
    ("POST", "/", {"Origin": "https://friend.example", "Sec-Fetch-Site": "cross-site"}),
]
FOREIGN = [
    ("POST", "/", EVIL),
    ("GET", "/", EVIL),
    ("POST", "/", {"Origin": "null"}),
    ("POST", "/", {"Origin": "http://localhost:3000"}),
    ("POST", "/", {"Origin": "http://localhost:3000", "Sec-Fetch-Site": "same-site"}),
    ("GET", "/", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "image"}),
    ("GET", "/", {**LINK, "Sec-Fetch-Dest": "iframe"}),
    ("GET", "/api", LINK),
    ("POST", "/", {**LINK, **EVIL}),
]


def ask(method, path, headers, origins=("https://friend.example",)):
    app = Starlette(routes=[Mount("/", PlainTextResponse("well"))])
    with TestClient(CrossOriginGuard(app, origins=origins), base_url="http://localhost:5000") as client:
        return client.request(method, path, headers=headers)


@pytest.mark.parametrize(("method", "path", "headers"), ALLOWED)
def test_requests_of_own_pages_allowed_origins_and_programs_are_accepted(method, path, headers):
    assert ask(method, path, headers).text == "well"


@pytest.mark.parametrize(("method", "path", "headers"), FOREIGN)
def test_requests_of_other_origins_are_refused_unless_all_are_allowed(method, path, headers):
    answer = ask(method, path, headers)
    assert (answer.status_code, answer.json()) == (403, {"error": REFUSED})
    assert ask(method, path, headers, origins=["*"]).text == "well"
