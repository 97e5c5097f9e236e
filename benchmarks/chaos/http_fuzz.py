"""Send fuzzed requests to every path of a server: no answer has status 500, and the memory stays flat.

[FULL=1] python benchmarks/chaos/http_fuzz.py
"""

import http.client
import json
import random
import sys
import tempfile
from collections import Counter
from pathlib import Path

from common import ROOT, of, report, small_model

sys.path.insert(0, str(ROOT / "tests"))
from serving import Process

POSTS = ("/translate", "/detect", "/v1/translate", "/v1/stream", "/v1/trace")
GETS = ("/", "/languages", "/frontend/settings", "/health", "/metrics", "/openapi.json", "/spec", "/docs", "/explore/")
FIELDS = {
    "q": ["the old house", ["a", "b"], "", "<b>x</b>" * 9],
    "texts": [["the old house"], ["a"] * 9, [], ["<p>the <b>old</b> house</p>"]],
    "text": ["the old house. a tree", ""],
    "source": ["en", "auto", "xx", "EN", None],
    "target": ["de", "xx", "en"],
    "format": ["text", "html", ""],
    "alternatives": [0, 3, "3"],
    "beam": [1, 4, 16, 17],
    "n_best": [1, 4],
    "alpha": [0, 0.6],
    "penalty": ["power", "paper"],
    "sample": [False, True],
    "top_k": [0, 5],
    "prefixes": [["the"], []],
    "prefix": ["der"],
    "glossary": [{"house": "Haus"}, {}],
    "keep": [["tree"]],
    "alignments": [True],
    "edits": [["scale=off"], ["x"]],
    "api_key": ["k"],
}
STRANGE = (
    None,
    True,
    -1,
    10**30,
    1e308,
    "",
    "\x00",
    "\ud83d\ude00",
    "\u202e",
    "א" * 50,
    [],
    {},
    [[[]]],
    "a" * 5000,
    "٣",
)
TYPES = ("application/json", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x", "text/plain", "")


def body(draw: random.Random) -> bytes:
    chosen = draw.sample(list(FIELDS), draw.randint(1, 7))
    wish = {name: draw.choice(FIELDS[name]) for name in chosen}
    if draw.random() < 0.4:
        wish[draw.choice([*chosen, "other"])] = draw.choice(STRANGE)
    data = json.dumps(wish, ensure_ascii=draw.random() < 0.5).encode("utf-8", "replace")
    if draw.random() < 0.2 and data:
        at = draw.randrange(len(data))
        data = data[:at] + draw.randbytes(draw.randint(0, 3)) + data[at + draw.randint(0, 4) :]
    return data


def ask(connection: http.client.HTTPConnection, draw: random.Random) -> int:
    method = draw.choice(("POST", "POST", "POST", "GET", draw.choice(("PUT", "HEAD", "OPTIONS", "DELETE", "X"))))
    path = draw.choice(POSTS if method == "POST" or draw.random() < 0.2 else GETS)
    if draw.random() < 0.05:
        path += draw.choice(("/", "/..", "%00", "?source=en&q=%ff", "?q=a&target=de&source=auto", "//x", "%2e%2e/x"))
    headers = {"Content-Type": draw.choice((TYPES[0], TYPES[0], TYPES[0], *TYPES))}
    if draw.random() < 0.05:
        headers[draw.choice(("Origin", "Authorization", "Accept", "Sec-Fetch-Site", "Range"))] = "bytes=0-1,\x7f"
    connection.request(method, path, body(draw) if method == "POST" else None, headers)
    answer = connection.getresponse()
    content = answer.read()
    if answer.status >= 400 and method != "HEAD":
        assert list(json.loads(content)) == ["error"], content[:200]
    return answer.status


def main() -> None:
    number, failures = of(100_000), []
    statuses, memory = Counter[int](), []
    with tempfile.TemporaryDirectory() as name:
        server = Process(small_model(Path(name)), environment={"ONEHOP_CACHE": f"{name}/cache"})
        connection = http.client.HTTPConnection(server.host, server.port, timeout=60)
        for seed in range(number):
            if seed % max(1, number // 8) == 0:
                memory.append(round(server.metric("process_resident_memory_bytes") / 1e6))
            try:
                statuses[status := ask(connection, random.Random(seed))] += 1
                if status == 500:
                    failures.append(f"request {seed}: 500")
            except Exception as e:
                connection.close()
                failures.append(f"request {seed}: {type(e).__name__}: {e}")
        server.stop()
    if "Traceback" in "".join(server.errors):
        failures.append("".join(server.errors)[-2000:])
    # Torch is imported during the first half, so only the second half counts.
    if memory[-1] > 1.2 * memory[len(memory) // 2]:
        failures.append(f"the memory grew: {memory} MB")
    report("http_fuzz", {"requests": number, "statuses": dict(sorted(statuses.items())), "memory MB": memory}, failures)


if __name__ == "__main__":
    main()
