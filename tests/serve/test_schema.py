"""Whatever is sent, the answer is one that the OpenAPI document describes, and never a defect."""

import json
from base64 import b64encode
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st
from jsonschema import Draft202012Validator

from made_inputs import png
from services import Running


@pytest.fixture(scope="module")
def document(service: Running) -> dict[str, Any]:
    with service.http() as http:
        found: dict[str, Any] = http.get("/openapi.json").json()
    return found


def check(document: dict[str, Any], path: str, response: httpx.Response, method: str = "post") -> None:
    """Assert that an answer is described."""
    assert response.status_code < 500, response.text
    described = document["paths"][path][method]["responses"][str(response.status_code)]
    kind = response.headers["content-type"].partition(";")[0]
    schema = described["content"][kind]["schema"]
    if kind == "application/json":
        Draft202012Validator({**schema, "components": document["components"]}).validate(response.json())


def test_the_document_is_sound_and_names_every_field(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1")
    form = document["paths"]["/v1/classify"]["post"]["requestBody"]["content"]["multipart/form-data"]["schema"]
    Draft202012Validator.check_schema(form)
    for path in ("/v1/classify", "/v1/explain"):
        own = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
        Draft202012Validator.check_schema(own)
        assert "binary" not in json.dumps(own)
        good = {"images": ["AAAA", {"name": "a.png", "base64": "AAAA"}], "image": "AAAA", "seed": 3}
        fields = {name: value for name, value in good.items() if name in own["properties"]}
        Draft202012Validator(own).validate(fields)
    assert form["required"] == ["images"]
    assert form["properties"]["images"]["items"]["format"] == "binary"
    assert form["properties"]["seed"]["minimum"] == 0
    assert set(document["paths"]) == {
        "/v1/classify", "/v1/explain", "/v1/methods", "/v1/models", "/v1/labels", "/healthz", "/readyz"
    }  # fmt: skip


def test_what_is_listed_is_as_described(service: Running, document: dict[str, Any]) -> None:
    with service.http() as http:
        for path, methods in document["paths"].items():
            if "get" in methods:
                check(document, path, http.get(path), "get")


PHOTO = png()
WORDS = st.text(max_size=30)
NAMES = st.one_of(
    WORDS, st.sampled_from(("a,b", "cat,dog,rocket", "a\nb\n", ",", "a", "\x00", "x" * 201, "É, é, e\u0301"))
)
METHOD = st.one_of(
    WORDS, st.sampled_from(("zero_shot", "fcl", "mta", "zero_shot,mta", "all,", "tpt", "zero", "gallery"))
)
SETTING = st.one_of(
    WORDS,
    st.builds(
        "{}={}".format,
        st.sampled_from(
            ("masks", "k", "rho", "lr", "beta", "grids", "area", "occluder", "estimator", "budget", "steps")
        ),
        st.one_of(
            st.integers(-2, 8), st.floats(), WORDS, st.sampled_from(("true", "none", "2,3", "1e400", "0.5,x", "mean"))
        ),
    ),
)
CONTENT = st.one_of(
    st.binary(max_size=200), st.just(PHOTO), st.integers(0, len(PHOTO)).map(lambda end: PHOTO[:end]), st.just(b"")
)
FIELDS = {
    "labels": NAMES,
    "label_set": st.one_of(WORDS, st.just("pets")),
    "method": METHOD,
    "settings": st.lists(SETTING, max_size=3),
    "prompts": st.one_of(WORDS, st.sampled_from(("single", "generic7"))),
    "preset": st.one_of(WORDS, st.sampled_from(("paper", "recommended", "official"))),
    "plain": st.one_of(WORDS, st.sampled_from(("own", "crop", "pad", "squash"))),
    "seed": st.one_of(WORDS, st.integers(-2, 2**70).map(str)),
    "top_k": st.one_of(WORDS, st.integers(-1, 200).map(str)),
    "template": st.lists(st.one_of(WORDS, st.sampled_from(("a {}.", "{c}", "{} {}"))), max_size=3),
    "descriptions": st.one_of(
        WORDS,
        st.sampled_from(('{"a": ["an a"], "b": "a {}"}', '{"x": {"a": ["a"]}}', "[1]", "[[" * 5_000, '{"a": [""]}')),
    ),
    "unknown": st.one_of(
        WORDS, st.sampled_from(("probability=0.5", "cosine", "energy=1e400", "cosine=nan", "energy=-+1", "t.json"))
    ),
    "truncate": st.one_of(WORDS, st.sampled_from(("true", "false"))),
    "format": st.one_of(WORDS, st.sampled_from(("json", "html"))),
    "images": WORDS,
    "image": WORDS,
}
SERVED = settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture])


def forms(known: tuple[str, ...], file: str) -> st.SearchStrategy[tuple[dict[str, Any], list[Any]]]:
    """Return forms whose fields are often good, and files."""
    good = st.fixed_dictionaries({"labels": NAMES}, optional={name: FIELDS[name] for name in known if name != "labels"})
    wild = st.dictionaries(
        st.one_of(st.sampled_from([*FIELDS]), st.text(max_size=8)), st.one_of(WORDS, NAMES), max_size=4
    )
    parts = st.tuples(
        st.sampled_from((file, file, file, file, "images", "image", "labels_file", "labels")), st.tuples(WORDS, CONTENT)
    )
    return st.tuples(st.one_of(good, good, wild), st.lists(parts, max_size=3))


CLASSIFY = tuple(name for name in FIELDS if name not in ("format", "images", "image"))
EXPLAIN = ("labels", "label_set", "settings", "preset", "plain", "seed", "truncate", "format")


@given(forms(CLASSIFY, "images"))
@SERVED
def test_any_form_to_classify(service: Running, document: dict[str, Any], form: tuple[Any, Any]) -> None:
    _send(service, document, "/v1/classify", form)


@given(forms(EXPLAIN, "image"))
@SERVED
def test_any_form_to_explain(service: Running, document: dict[str, Any], form: tuple[Any, Any]) -> None:
    _send(service, document, "/v1/explain", form)


def _send(service: Running, document: dict[str, Any], path: str, form: tuple[Any, Any]) -> None:
    with service.http() as http:
        try:
            request = http.build_request("POST", path, data=form[0], files=form[1] or [("none", ("", b""))])
            request.read()
        except (UnicodeEncodeError, ValueError):  # a name that the client cannot send
            return
        check(document, path, http.send(request))


@given(
    st.binary(max_size=300),
    st.sampled_from(("multipart/form-data; boundary=b", "multipart/form-data", "application/json", "text/plain", "")),
)
@SERVED
def test_any_body(service: Running, document: dict[str, Any], body: bytes, kind: str) -> None:
    with service.http() as http:
        check(document, "/v1/classify", http.post("/v1/classify", content=body, headers={"Content-Type": kind}))


VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), WORDS, NAMES, st.just(b64encode(PHOTO).decode())),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.dictionaries(st.sampled_from(("name", "base64", "a")), inner, max_size=2)
    ),
    max_leaves=4,
)


@given(st.dictionaries(st.one_of(st.sampled_from([*FIELDS, "labels_file"]), WORDS), VALUES, max_size=4))
@SERVED
def test_any_json(service: Running, document: dict[str, Any], fields: dict[str, Any]) -> None:
    with service.http() as http:
        for path in ("/v1/classify", "/v1/explain"):
            sent = {"labels": ["cat", "dog"], **fields}
            content = json.dumps(sent).encode()
            check(document, path, http.post(path, content=content, headers={"Content-Type": "application/json"}))


def test_the_service_is_as_before(service: Running, sent: list[Path]) -> None:
    with service.http() as http:
        form = {"label_set": "pets", "method": "zero_shot"}
        response = http.post("/v1/classify", data=form, files=[("images", ("a.jpg", sent[0].read_bytes()))])
    assert response.status_code == 200
    assert service.metric("faircontext_queue_images") == 0
    assert 'reason="defect"' not in json.dumps(service.log.read_text())
    assert service.log.read_text() == ""
