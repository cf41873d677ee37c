"""What is not answered: one line of JSON that names the field, whatever is sent."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from services import Running, Sent, problem, running

MANY = "\n".join(f"class {number}" for number in range(2001))


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({}, "labels", "invalid labels: missing; give one of labels, labels_file and label_set (default, pets)"),
        (
            {"labels": "a,b", "label_set": "pets"},
            "label_set",
            "invalid labels: given as labels and label_set",
        ),
        ({"labels": " , "}, "labels", "labels: no class names; give at least one"),
        ({"labels": "a\x07b,c"}, "labels", "class name number 1, 'a\\x07b', has control characters"),
        ({"labels": MANY}, "labels", "invalid labels: 2,001 class names, at most 2,000"),
        ({"labels": f"cat,{'x' * 201}"}, "labels", "invalid labels: class name number 2 has 201 letters, at most 200"),
        ({"label_set": "birds"}, "label_set", "invalid label_set 'birds': known: default, pets"),
        ({"labels": "a,b", "method": "fc"}, "method", "unknown method 'fc'; did you mean 'fcl'?"),
        ({"labels": "a,b", "method": "gallery"}, "method", "unknown method 'gallery'"),
        ({"labels": "a,b", "method": ""}, "method", "unknown method ''"),
        (
            {"labels": "a,b", "method": "zero_shot,tda"},
            "method",
            "invalid method 'tda': its answers depend on the images before, and each request is answered by itself",
        ),
        ({"labels": "a,b", "settings": "masks"}, "settings", "'masks' is not a setting; write name=value"),
        ({"labels": "a,b", "settings": "maks=3"}, "settings", "unknown setting of fcl 'maks'; did you mean 'masks'?"),
        ({"labels": "a,b", "settings": "masks=1001"}, "settings", "invalid masks 1001 of fcl: must be at most 1,000"),
        ({"labels": "a,b", "settings": "lr=-1"}, "settings", "lr=-1.0 is not possible"),
        (
            {"labels": "a,b", "method": "rlcf", "settings": "reward=local-dir:/etc"},
            "settings",
            "invalid reward of rlcf",
        ),
        ({"labels": "a,b", "method": "tps", "settings": "descriptors=/etc/passwd"}, "settings", "invalid descriptors"),
        ({"labels": "a,b", "prompts": "dataset"}, "prompts", "invalid prompts: input should be 'single', 'generic7'"),
        ({"labels": "a,b", "preset": "best"}, "preset", "invalid preset: input should be 'paper', 'recommended'"),
        ({"labels": "a,b", "seed": "-1"}, "seed", "invalid seed: input should be greater than or equal to 0"),
        ({"labels": "a,b", "seed": "one"}, "seed", "invalid seed: input should be a valid integer"),
        ({"labels": "a,b", "seed": ["1", "2"]}, "seed", "invalid seed: given 2 times; give it once"),
        ({"labels": "a,b", "top_k": "0"}, "top_k", "invalid top_k: input should be greater than or equal to 1"),
        ({"labels": "a,b", "truncate": "maybe"}, "truncate", "invalid truncate: input should be a valid boolean"),
        ({"labels": " ".join(["long"] * 45)}, "labels", ""),
        ({"labels": "a,b", "backbone": "/etc"}, "backbone", "invalid backbone: unknown; known: labels, labels_file"),
        ({"labels": MANY[:19_000], "prompts": "imagenet80"}, "prompts", "invalid prompts: "),
        ({"labels": "a,b", "template": "a photo"}, "template", "prompt template 'a photo' needs exactly one {}"),
        ({"labels": "a,b", "template": "{} " * 400}, "template", "invalid template: string should have at most 1000"),
        ({"labels": "a,b", "descriptions": "{"}, "descriptions", "invalid descriptions: is no JSON"),
        (
            {"labels": "a,b", "descriptions": '{"a": ["a"]}'},
            "descriptions",
            "invalid descriptions: lacks prompts of 'b'",
        ),
        (
            {"labels": "a,b", "descriptions": json.dumps({"a": [f"a {n}" for n in range(16_000)], "b": ["b"]})},
            "prompts",
            "invalid prompts: 16,001 of 2 class names, at most 16,000 in all",
        ),
        (
            {"labels": "a,b", "unknown": "thresholds.json"},
            "unknown",
            "invalid unknown: must be probability, cosine or energy, with =VALUE",
        ),
        ({"labels": "a,b", "unknown": "cosine=1e400"}, "unknown", "invalid threshold '1e400'"),
    ],
)
def test_a_field_that_cannot_be_used_is_named(
    service: Running, photo: Sent, fields: dict[str, Any], field: str, message: str
) -> None:
    with service.http() as http:
        response = http.post("/v1/classify", data=fields, files=[photo])
        if fields == {"labels": " ".join(["long"] * 45)}:  # 225 letters
            message = "invalid labels: class name number 1 has 224 letters, at most 200"
    error = problem(response)
    assert (response.status_code, error["field"]) == (422, field)
    assert error["message"].startswith(message), error["message"]


FORM = {"labels": "a,b", "method": "zero_shot"}


def test_files_where_they_do_not_belong_are_named(service: Running, photo: Sent) -> None:
    text = ("labels", ("names.txt", b"a\nb"))
    image = ("image", photo[1])
    with service.http() as http:
        for form, files, field in (
            (FORM, [image], "images"),
            ({"labels": "a,b"}, [photo], "image"),
            ({"labels": "a,b"}, [image, photo], "images"),
            ({"labels": "a,b", "images": "x" * 40}, [image], "images"),
        ):
            path = "/v1/classify" if form is FORM else "/v1/explain"
            assert problem(http.post(path, data=form, files=files))["field"] == field
        for fields, files, field in (
            (FORM, [("images", (None, b"words"))], "images"),
            ({"method": "fcl"}, [photo, text], "labels"),
            (FORM, [("labels_file", ("names.txt", b"a"))], "images"),
            ({"method": "fcl"}, [photo, ("labels_file", ("names.txt", b"\xff\xfe\x00a"))], "labels_file"),
            ({"method": "fcl"}, [photo, ("labels_file", ("names.txt", b"# nothing\n"))], "labels_file"),
        ):
            assert problem(http.post("/v1/classify", data=fields, files=files))["field"] == field
        refused = problem(http.post("/v1/explain", data={"labels": "a,b"}, files=[("image", ("x.png", b"no image"))]))
    assert (refused["status"], refused["field"], refused["message"]) == (
        422,
        "image",
        "x.png: not an image but text",
    )


def test_what_is_too_large_is_refused_and_the_next_request_is_answered(service: Running, photo: Sent) -> None:
    large = ("images", ("large.jpg", b"\xff\xd8" + b"x" * 600_000))
    with service.http() as http:
        for files, field in (([photo, large], "images"), ([photo] * 31, "images"), ([photo] * 40, "images")):
            response = http.post("/v1/classify", data=FORM, files=files)
            assert (response.status_code, problem(response)["field"]) == (413, field)
        response = http.post("/v1/classify", data=FORM | {"settings": ["x" * 5_000_000]}, files=[photo])
        assert (response.status_code, problem(response)["field"]) == (413, "body")
        assert http.post("/v1/classify", data=FORM, files=[photo]).status_code == 200


@pytest.mark.parametrize(
    ("content", "kind", "status"),
    [
        (b"{}", "text/json", 415),
        (b"{}", "application/json; charset=latin-1", 415),
        (b'{"images": [', "application/json", 400),
        (b"[]", "application/json", 400),
        (b"[" * 100_000, "application/json", 400),
        (b'{"labels": "\xff"}', "application/json", 400),
        (b'{"\\ud800": "a"}', "application/json", 400),
        (b'{"labels": ' + b"[" * 1_000 + b"]" * 1_000 + b"}", "application/json", 400),
        (b'{"labels": [' + b"1," * 300_000 + b"1]}", "application/json", 413),
        (b"labels=a", "application/x-www-form-urlencoded", 415),
        (b"x", "multipart/form-data", 415),
        (b"words", "multipart/form-data; boundary=b", 400),
        (b"--b\r\nContent-Disposition: form-data\r\n\r\nx\r\n--b--\r\n", "multipart/form-data; boundary=b", 400),
    ],
)
def test_a_body_that_is_no_form_is_refused(service: Running, content: bytes, kind: str, status: int) -> None:
    with service.http() as http:
        response = http.post("/v1/classify", content=content, headers={"Content-Type": kind})
    assert response.status_code == status
    assert problem(response)["field"] in ("Content-Type", "body")


def test_other_paths_and_methods_are_refused_in_json(service: Running) -> None:
    with service.http() as http:
        for path in ("/v1/nothing", "/../etc/passwd", "/page/../../options.py", "/docs/redoc.standalone.js"):
            assert problem(http.get(path))["status"] == 404
        assert problem(http.get("/v1/classify"))["status"] == 405
        assert problem(http.put("/"))["status"] == 405


def test_head_is_get_without_a_body(service: Running) -> None:
    with service.http() as http:
        for path in (
            "/healthz",
            "/readyz",
            "/v1/methods",
            "/v1/models",
            "/v1/labels",
            "/openapi.json",
            "/",
            "/nowhere",
        ):
            head, got = http.head(path), http.get(path)
            assert (head.status_code, head.content) == (got.status_code, b"")
            assert head.headers["content-length"] == got.headers["content-length"]
        assert (http.head("/v1/classify").status_code, http.head("/metrics").status_code) == (405, 200)


def test_every_answer_has_the_headers_of_safety(service: Running) -> None:
    with service.http() as http:
        for path in ("/", "/page.js", "/docs", "/docs/swagger-ui-bundle.js", "/v1/methods", "/nowhere", "/metrics"):
            headers = http.get(path).headers
            assert headers["x-content-type-options"] == "nosniff"
            policy = headers["content-security-policy"]
            assert "frame-ancestors 'none'" in policy
            assert "default-src 'none'" in policy
            assert "unsafe-inline" not in policy or path.startswith("/v1/")
            assert "server" not in headers


@pytest.mark.parametrize(
    ("fields", "status", "message"),
    [
        ({}, 422, "invalid images: missing; send a file"),
        ({"images": []}, 422, "invalid images: list should have at least 1 item"),
        ({"images": ["%"]}, 422, "invalid images: must be a file in base64, or {"),
        ({"images": [{"name": "a.png"}]}, 422, "invalid images: must be a file in base64, or {"),
        ({"images": [3]}, 422, "invalid images: must be a file in base64, or {"),
        ({"images": ["AAAA"] * 31}, 413, "invalid images: at most 30 in a request"),
        ({"images": ["A" * 800_000]}, 413, "invalid images: a file is larger than 0.5 MB"),
        ({"images": ["AAAA"], "labels": ["a", "b\nc"]}, 422, "class name number 2, 'b\\nc', has control characters"),
        ({"images": ["AAAA"], "labels": ["a", "# b"]}, 422, "class name number 2, '# b', starts with #"),
        ({"images": ["AAAA"], "labels": ["a", 3]}, 422, "class name number 2 is 3, not a string"),
        ({"images": ["AAAA"], "labels": "\ud800,b"}, 400, "invalid body: must be an object of JSON in UTF-8"),
        ({"images": ["AAAA"], "labels": "a" * 5_000_000}, 422, "invalid labels: string should have at most 4194304"),
        ({"images": ["AAAA"], "seed": -1}, 422, "invalid seed: input should be greater than or equal to 0"),
        ({"images": ["AAAA"], "sed": 1}, 422, "invalid sed: unknown; known: labels, "),
        ({"images": ["AAAA"], "seed": float("nan")}, 422, "invalid seed: input should be a finite number"),
        ({"images": ["AAAA"], "method": ["fcl"]}, 422, "invalid method: input should be a valid string"),
        ({"images": "AAAA"}, 422, "invalid images: input should be a valid array"),
        ({"images": ["AAAA"], "labels_file": 3}, 422, "invalid labels_file: must be a file in base64, or {"),
        ({"images": ["AAAA"], "labels": ["a", "b"], "settings": ["maks=3"]}, 422, "unknown setting of fcl 'maks'"),
    ],
)
def test_json_is_refused_as_a_form_is(service: Running, fields: dict[str, Any], status: int, message: str) -> None:
    with service.http() as http:
        error = problem(http.post("/v1/classify", content=json.dumps(fields).encode(), headers=JSON))
    assert (error["status"], error["message"][: len(message)]) == (status, message)


JSON = {"Content-Type": "application/json"}


@pytest.mark.process
def test_pages_of_sites_that_are_allowed_may_ask(model_words: tuple[str, ...], tmp_path: Path, photo: Sent) -> None:
    (tmp_path / "token").write_text("a-word-of-twenty-six-signs")
    sites = ("--allow-origin", "https://photos.example.org", "http://localhost:3000")
    words = (*sites, "--token", str(tmp_path / "token"))
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization,content-type"}
    form: dict[str, Any] = {"data": {"method": "zero_shot"}, "files": [photo]}
    with running(tmp_path, *model_words, "--labels", "cat,dog", *words) as started, started.http() as http:
        for origin, allowed in (
            ("https://photos.example.org", True),
            ("http://localhost:3000", True),
            ("https://evil.example", False),
            ("null", False),
        ):
            shown = origin if allowed else None
            page = {"Origin": origin, "Sec-Fetch-Site": "cross-site"}
            before = http.options("/v1/classify", headers=page | asked)
            assert before.status_code == (200 if allowed else 400)
            assert before.headers.get("access-control-allow-origin") == shown
            told = page | {"Authorization": "Bearer a-word-of-twenty-six-signs"}
            answered = http.post("/v1/classify", headers=told, **form)
            assert answered.status_code == (200 if allowed else 403)
            without = http.post("/v1/classify", headers=page, **form)  # a refusal can be read as well
            assert without.status_code == (401 if allowed else 403)
            for response in (answered, without):
                assert response.headers.get("access-control-allow-origin") == shown
                assert "access-control-allow-credentials" not in response.headers
            assert "x-request-id" in answered.headers["access-control-expose-headers"].lower()


def test_without_allowed_sites_nothing_is_said_of_them(service: Running) -> None:
    with service.http() as http:
        page = {"Origin": "https://photos.example.org", "Access-Control-Request-Method": "POST"}
        assert not [name for name in http.get("/v1/labels", headers=page).headers if name.startswith("access-control")]
        assert http.options("/v1/classify", headers=page).status_code == 405


def test_pages_of_other_sites_and_strange_names_are_refused(service: Running) -> None:
    with service.http() as http:
        assert problem(http.get("/v1/labels", headers={"Host": "evil.example"}))["field"] == "Host"
        assert problem(http.get("/v1/labels", headers={"Sec-Fetch-Site": "cross-site"}))["status"] == 403
        assert http.get("/v1/labels", headers={"Host": "localhost:1"}).status_code == 200


@pytest.mark.process
def test_the_token_is_asked_for(model_words: tuple[str, ...], tmp_path: Path, photo: Sent) -> None:
    word = "a-word-of-twenty-six-signs"
    (tmp_path / "token").write_text(word + "\n")
    # Another address than the loopback may be listened on with a token.
    with running(tmp_path, *model_words, "--host", "0.0.0.0", "--token", str(tmp_path / "token")) as started:
        with started.http() as http:
            for given in (
                None,
                "",
                "Bearer",
                f"Bearer {word}x",
                f"Basic {word}",
                word,
                f"Bearer {word[:-1]}",
                "Bearer \xff",
            ):
                headers = {} if given is None else {"Authorization": given.encode("latin-1")}
                for path in ("/v1/methods", "/metrics"):
                    response = http.get(path, headers=headers)
                    assert problem(response)["field"] == "Authorization"
                    assert response.status_code == 401
                    assert response.headers["www-authenticate"] == "Bearer"
            assert http.post("/v1/classify", data=FORM, files=[photo]).status_code == 401
            for path in ("/", "/healthz", "/readyz", "/docs", "/openapi.json"):
                assert http.get(path).status_code == 200
        with started.http(headers={"Authorization": f"Bearer {word}"}) as http:
            assert http.post("/v1/classify", data=FORM, files=[photo]).status_code == 200
            assert b"faircontext_refusals_total" in http.get("/metrics").content
    assert word not in (tmp_path / "log.txt").read_text()


@pytest.fixture(scope="module")
def hasty(model_words: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service that gives little time, and takes little."""
    limits = ("--timeout", "1", "--upload-timeout", "1", "--queue", "3", "--max-request-mb", "1")
    with running(tmp_path_factory.mktemp("hasty"), *model_words, *limits) as started:
        yield started


SLOW = {"labels": "a,b,c,d", "method": "fcl", "settings": "masks=1000 steps=200"}


@pytest.mark.process
def test_what_takes_too_long_is_a_timeout_and_the_rest_is_not_computed(hasty: Running, photo: Sent) -> None:
    with hasty.http() as http:
        response = http.post("/v1/classify", data=SLOW, files=[photo] * 60)  # larger than the queue, which is empty
        assert (response.status_code, problem(response)["reason"]) == (504, "timeout")
        assert http.post("/v1/classify", data=FORM, files=[photo]).status_code in (200, 504)
    hasty.wait_for("faircontext_batch_images_count", 1)
    assert hasty.metric('faircontext_images_total{outcome="answered"}') < 60
    assert hasty.metric('faircontext_refusals_total{reason="timeout"}') >= 1


@pytest.mark.process
def test_a_slow_sender_and_an_endless_request_are_refused(hasty: Running) -> None:
    host, port = hasty.url.removeprefix("http://").split(":")
    head = f"POST /v1/classify HTTP/1.1\r\nHost: {host}\r\nContent-Type: multipart/form-data; boundary=b\r\n"
    with socket.create_connection((host, int(port))) as slow:
        slow.sendall(f"{head}Content-Length: 1000\r\n\r\n--b".encode())
        began = time.monotonic()
        assert slow.recv(100).startswith(b"HTTP/1.1 408")
        assert 0.5 < time.monotonic() - began < 20
    with socket.create_connection((host, int(port))) as long:
        long.sendall(f"{head}Content-Length: 5000000000\r\n\r\n--b".encode())
        assert long.recv(100).startswith(b"HTTP/1.1 413")
    with socket.create_connection((host, int(port))) as chunked:
        chunked.sendall(f"{head}Transfer-Encoding: chunked\r\n\r\n".encode())
        chunk = b"10000\r\n" + b"x" * 0x10000 + b"\r\n"
        try:
            for _ in range(40):
                chunked.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):  # the service has answered and closed
            pass
        else:
            assert chunked.recv(100)[:12] in (b"HTTP/1.1 413", b"HTTP/1.1 400")
    with hasty.http() as http:
        assert http.get("/healthz").status_code == 200
