"""Requests made from the service's own OpenAPI document: no 500, and every answer conforms to it.

`DTPT_FUZZ_REQUESTS=10000 pytest tests/web/test_openapi_fuzz.py -s` sends that many, with a seed
that it prints; `DTPT_FUZZ_SEED` repeats a run.
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import hypothesis
import pytest
import requests
from hypothesis import strategies as st
from live_server import LIMITS, PATIENCE, png, running

from dtpt.web.playground import Playground

schemathesis = pytest.importorskip("schemathesis")
from schemathesis import Case, GenerationMode, openapi  # noqa: E402
from schemathesis.checks import not_a_server_error  # noqa: E402
from schemathesis.specs.openapi import checks  # noqa: E402

REQUESTS = int(os.environ.get("DTPT_FUZZ_REQUESTS", "240"))
IS_LONG = "DTPT_FUZZ_REQUESTS" in os.environ
SEED = int(os.environ.get("DTPT_FUZZ_SEED", random.randrange(2**32) if IS_LONG else 0))
CHECKS = [
    not_a_server_error,
    checks.status_code_conformance,
    checks.content_type_conformance,
    checks.response_schema_conformance,
    checks.response_headers_conformance,
]
# of all requests; the other operations share the rest
SHARES = {"POST /v1/predict": 0.5, "POST /v1/score": 0.2}
HEADERS = {"X-Dtpt-Request": "1"}
IMAGE = png()
METHODS = ["zero-shot", "tpt", "d-tpt", "mta", "tps", "c-tpt-static", "zero", "r-tpt", "no-such"]
ENDINGS = [
    "",
    "+sals",
    "+no-tdd",
    "+views=0.3",
    "+ts=2",
    "@1e6",
    "@auto-each",
    "@1e12",
    "+lr=1e300",
]
CELLS = st.sampled_from(["0.5", "1", "0", "true", "nan", "-1", "1e308", "", "x", "0.25", "2"])


@pytest.fixture(scope="module")
def fuzzed(tiny_clip) -> Iterator[Any]:
    """A server that knows the image `IMAGE` by its id."""
    limits = LIMITS.model_copy(update={"deadline": 5.0})
    with running(Playground(tiny_clip, name="tiny", limits=limits)) as started:
        yield started


def mostly(usual: st.SearchStrategy[Any], odd: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.sampled_from([usual] * 5 + [odd]).flatmap(lambda chosen: chosen)


NAMES = st.builds(str.__add__, st.sampled_from(METHODS), st.sampled_from(ENDINGS))
CLASSES = st.text(st.characters(categories=("L", "N", "P")), min_size=1, max_size=6)
NEAR = st.fixed_dictionaries(
    {
        "classes": st.lists(CLASSES, min_size=2, max_size=5),
        "methods": st.lists(NAMES, min_size=1, max_size=2),
        "template": mostly(st.just("a photo of a {}."), st.sampled_from(["a {}", "{}{}", ""])),
    },
    optional={
        "views": mostly(st.just(8), st.integers(0, 9)),
        "steps": st.integers(0, 3),
        "dropped": mostly(st.just([]), st.lists(st.integers(1, 8), max_size=3)),
        "show": st.lists(st.sampled_from(["views", "words", "evidence", "commands"]), max_size=4),
        "learning_rate": mostly(st.floats(1e-9, 1e3), st.floats(0, 1e308)),
        "weight_decay": mostly(st.floats(0, 1e3), st.floats(0, 1e308)),
        "rho": mostly(st.floats(1e-3, 1), st.floats(0, 2)),
        "entropy": st.sampled_from(["of-mean", "mean-of"]),
    },
)


@st.composite
def csv_files(draw: st.DrawFn) -> bytes:
    header = draw(st.sampled_from(["confidence,correct", "p0,p1,label", "confidence", "p0,p0"]))
    width = header.count(",") + draw(st.sampled_from([1, 1, 1, 1, 2]))
    rows = draw(st.lists(st.lists(CELLS, min_size=width, max_size=width), max_size=6))
    end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
    return end.join([header, *(",".join(row) for row in rows)]).encode()


class Fuzz:
    """Sends cases to a server and counts the answers."""

    def __init__(self, server: Any) -> None:
        self.server = server
        self.address = f"http://{server.host}"
        self.session = requests.Session()
        self.session.trust_env = False
        self.statuses: Counter[int] = Counter()
        settings = {"classes": ["a", "b"], "methods": ["tpt"], "show": ["views"]}
        for views in range(1, 10):
            _, response = server.predict(IMAGE, settings | {"views": views})
        self.image_id = response["image"]["id"]

    def send(self, case: Case) -> None:
        response = case.call(
            base_url=self.address, session=self.session, headers=HEADERS, timeout=PATIENCE
        )
        self.statuses[response.status_code] += 1
        case.validate_response(response, checks=CHECKS)

    def vary(self, case: Case, data: st.DataObject) -> None:
        """Replace most bodies by ones that get further than the check of their form."""
        where = f"{case.method} {case.path}"
        if where == "POST /v1/predict" and isinstance(case.body, dict):
            change = data.draw(st.sampled_from(["none", "known", "form", "form", "form"]))
            near = {} if change == "none" else data.draw(NEAR)
            if case.media_type == "application/json":
                near = {**case.body, **near}
            if change == "known":
                case.media_type = "application/json"
                case.body = {**near, "image_id": self.image_id}
            elif change == "form":
                case.media_type = "multipart/form-data"
                case.body = {"image": IMAGE, "settings": json.dumps(near, default=repr)}
        elif where == "POST /v1/score" and data.draw(st.booleans()):
            case.body = data.draw(csv_files())

    def run(self, operation: Any, mode: GenerationMode, *, count: int) -> None:
        """Send at most `count` requests; fewer if no more different ones exist."""

        @hypothesis.seed(SEED + self.statuses.total())
        @hypothesis.settings(
            max_examples=count,
            database=None,
            deadline=None,
            phases=[hypothesis.Phase.generate],
            suppress_health_check=list(hypothesis.HealthCheck),
        )
        @hypothesis.given(operation.as_strategy(generation_mode=mode), st.data())
        def check(case: Case, data: st.DataObject) -> None:
            self.vary(case, data)
            self.send(case)

        check()


def test_answers_conform_to_the_document(fuzzed, record_property: Callable[[str, object], None]):
    fuzz, started = Fuzz(fuzzed), time.monotonic()
    schema = openapi.from_dict(fuzzed.get("/openapi.json"))
    operations = [found.ok() for found in schema.get_all_operations()]
    rest = (1 - sum(SHARES.values())) / (len(operations) - len(SHARES))
    shares = [(each, SHARES.get(each.label, rest)) for each in operations]
    shares.append((schema["/v1/predict"]["POST"], 1))  # in place of those that do not exist
    failures = []
    for operation, share in shares:
        for mode in GenerationMode:
            left = (REQUESTS - fuzz.statuses.total()) / (
                2 if mode is GenerationMode.POSITIVE else 1
            )
            count = round(left) if share == 1 else max(1, round(share * REQUESTS / 2))
            try:
                fuzz.run(operation, mode, count=max(1, count))
            except hypothesis.errors.Unsatisfiable:  # nothing to negate: no parameter
                continue
            except Exception as error:
                failures.append(f"{operation.label}, {mode.value}: {error}")
    sent, seconds = fuzz.statuses.total(), time.monotonic() - started
    report = f"{sent} requests, seed {SEED}, {seconds:.0f} s, {dict(fuzz.statuses)}"
    print(f"\n{report}")
    record_property("fuzz", report)
    assert failures == [], f"seed {SEED}"
    assert fuzz.statuses[500] == 0
    assert not [line for line in fuzzed.log if '"status": 500' in line]
    assert fuzz.statuses[200] > sent / 20
