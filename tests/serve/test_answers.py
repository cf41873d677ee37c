"""What is answered over HTTP is what the library answers, to the bit, however requests come."""

import base64
import io
import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from faircontext.cli import main
from faircontext.types import headline
from helpers import read_arrays
from services import NAMES, Running, running

LABELS = "\n".join(NAMES)


def uploads(paths: list[Path], field: str = "images") -> list[tuple[str, tuple[str, bytes]]]:
    return [(field, (path.name, path.read_bytes())) for path in paths]


def by_library(paths: list[Path], folder: Path, *words: str) -> dict[str, Any]:
    """Return what `classify --json` writes."""
    out = folder / "library.json"
    main(["classify", *map(str, paths), "--json", str(out), *words])
    document: dict[str, Any] = json.loads(out.read_text())
    return document


_APART = ("path", "label", "label_index", "seconds", "shared_seconds", "top", "headline")


def comparable(answers: list[dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """Return entries by file and method, without times, the truth of a folder, and what the library does not tell."""
    return {
        (Path(entry["path"]).name, entry["method"]): {key: value for key, value in entry.items() if key not in _APART}
        for entry in answers
    }


METHODS = "zero_shot,fcl,mta"


@pytest.fixture(scope="module")
def expected(
    sent: list[Path], model_words: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Any]:
    words = (*model_words, "--labels", ",".join(NAMES), "--method", METHODS, "--set", "fcl.masks=8")
    return by_library(sent, tmp_path_factory.mktemp("library"), *words)


def test_all_that_classify_writes_is_answered(service: Running, sent: list[Path], expected: dict[str, Any]) -> None:
    with service.http() as http:
        form = {"label_set": "pets", "method": METHODS, "settings": "fcl.masks=8"}
        response = http.post("/v1/classify", data=form, files=uploads(sent))
    assert response.status_code == 200
    document = response.json()
    assert comparable(document["answers"]) == comparable(expected["answers"])
    assert [entry["path"] for entry in document["answers"][::3]] == [path.name for path in sent]
    shown = {**expected["run"], "backbone": "local-dir:clip"}  # a name, not a folder of the server
    assert document["run"] == shown
    assert document["versions"] == expected["versions"]
    assert str(Path.home()) not in response.text
    errors = {entry["path"]: entry["error"] for entry in document["answers"] if entry["error"]}
    assert sorted(errors) == ["03.jpg", "08.jpg"]


def test_answers_do_not_depend_on_how_requests_interleave(
    service: Running, sent: list[Path], expected: dict[str, Any]
) -> None:
    jobs = [([path], method) for path in sent for method in METHODS.split(",")]
    jobs += [(sent[:5], "zero_shot"), (sent[5:16], "zero_shot"), (sent[10:12], "mta")]
    random.Random(0).shuffle(jobs)

    def ask(job: tuple[list[Path], str]) -> list[dict[str, Any]]:
        paths, method = job
        form = {"labels": LABELS, "method": method, "settings": ["masks=8"] if method == "fcl" else []}
        with service.http() as http:
            while (response := http.post("/v1/classify", data=form, files=uploads(paths))).status_code == 429:
                pass
        assert response.status_code == 200, response.text
        answers: list[dict[str, Any]] = response.json()["answers"]
        return answers

    with ThreadPoolExecutor(12) as pool:
        found = list(pool.map(ask, jobs))
    wanted = comparable(expected["answers"])
    for answers in found:
        for key, entry in comparable(answers).items():
            assert entry == wanted[key]
    assert service.metric("faircontext_batch_images_sum") > service.metric("faircontext_batch_images_count")  # batches


@pytest.mark.process
def test_sixty_photos_with_the_embedded_model(data: Path, tmp_path: Path) -> None:
    photos = sorted((data / "pacs_photo").rglob("*.jpg"))[:60]
    assert len(photos) == 60
    names = "dog,elephant,giraffe,guitar,horse,house,person"
    words = ("--views", "count=8", "--labels", names)
    settings = ("fcl.masks=8", "fcl.k=3")
    library = by_library(photos, tmp_path, *words, "--method", METHODS, "--set", *settings)
    form = {"label_set": "default", "method": METHODS, "settings": [*settings]}
    with (
        running(tmp_path, *words, "--timeout", "900") as started,
        started.http() as http,
        ThreadPoolExecutor(2) as pool,
    ):

        def ask(part: list[Path]) -> list[dict[str, Any]]:
            answers: list[dict[str, Any]] = http.post("/v1/classify", data=form, files=uploads(part)).json()["answers"]
            return answers

        found = [entry for part in pool.map(ask, (photos[:29], photos[29:])) for entry in part]
    assert comparable(found) == comparable(library["answers"])


def test_the_most_probable_classes_stand_beside_zero_shot(service: Running, sent: list[Path]) -> None:
    form = {"labels": "cat,dog,rocket", "method": "fcl", "top_k": "2", "unknown": "probability=0"}
    with service.http() as http:
        (entry,) = http.post("/v1/classify", data=form, files=uploads(sent[:1])).json()["answers"]
        form |= {"method": "zero_shot", "unknown": "probability=1"}
        (plain,) = http.post("/v1/classify", data=form, files=uploads(sent[:1])).json()["answers"]
    assert [[one["name"], one["probability"]] for one in entry["top"]] == entry["top5"][:2]
    assert (entry["headline"], plain["headline"]) == (headline([*map(tuple, entry["top5"])]), "none of these")
    known = dict(plain["top5"])
    assert {one["name"]: one["zero_shot"] for one in entry["top"]}.items() <= known.items()


def test_labels_come_by_name_by_file_or_of_a_set(service: Running, sent: list[Path]) -> None:
    found = []
    with service.http() as http:
        for data, files in (
            ({"labels": "cat,dog,rocket,horse"}, []),
            ({"labels": "cat\n# a remark\n\ndog\nrocket\nhorse\n"}, []),
            ({}, [("labels_file", ("mine.txt", "\ufeffcat\r\ndog\nrocket\nhorse".encode()))]),
            ({"label_set": "pets"}, []),
        ):
            response = http.post("/v1/classify", data=data | {"method": "zero_shot"}, files=uploads(sent[:1]) + files)
            assert response.status_code == 200, response.text
            document = response.json()
            assert document["run"]["labels"] == list(NAMES)
            found.append(comparable(document["answers"]))
        assert http.get("/v1/labels").json() == {"label_sets": {"default": ["cup", "glass"], "pets": list(NAMES)}}
    assert all(answers == found[0] for answers in found)


def test_prompts_of_ones_own_and_none_of_these_are_as_of_the_library(
    service: Running, sent: list[Path], model_words: tuple[str, ...], tmp_path: Path
) -> None:
    described = json.dumps({name: [f"a drawing of a {name}", f"a small {name}"] for name in NAMES})
    (tmp_path / "own.json").write_text(described)
    common = {"labels": LABELS, "method": "zero_shot,fcl", "settings": ["fcl.masks=8", "fcl.context=cl-hp"]}
    words = (*model_words, "--labels", ",".join(NAMES), "--method", "zero_shot,fcl")
    words += ("--set", "fcl.masks=8", "fcl.context=cl-hp")  # descriptions have no words in common for cl to learn
    withheld = 0
    for form, more in (
        ({"template": ["ein {}.", "a {}!"]}, ("--template", "ein {}.", "--template", "a {}!")),
        ({"template": "a {}", "prompts": "single"}, ("--template", "a {}", "--prompts", "single")),
        ({"descriptions": described}, ("--descriptions", str(tmp_path / "own.json"))),
        ({"unknown": "probability=0.9"}, ("--unknown", "probability=0.9")),
        ({"unknown": "energy"}, ("--unknown", "energy")),
    ):
        expected = by_library(sent[:4], tmp_path, *words, *more)
        with service.http() as http:
            response = http.post("/v1/classify", data=common | form, files=uploads(sent[:4]))
        assert response.status_code == 200, response.text
        assert comparable(response.json()["answers"]) == comparable(expected["answers"])
        assert response.json()["run"] == {**expected["run"], "backbone": "local-dir:clip"}
        withheld += sum(entry["fallback"].startswith("none of these") for entry in expected["answers"])
    assert withheld


def test_json_is_answered_as_a_form(service: Running, sent: list[Path]) -> None:
    described = {name: [f"a drawing of a {name}"] for name in NAMES}
    coded = [base64.encodebytes(path.read_bytes()).decode() for path in sent[:4]]  # the fourth is broken
    form = {"labels": LABELS, "method": "zero_shot", "seed": "3", "top_k": "2", "template": ["a {}", "the {}"]}
    files = [{"name": path.name, "base64": text} for path, text in zip(sent, coded, strict=False)]
    with service.http() as http:
        expected = http.post("/v1/classify", data=form, files=uploads(sent[:4])).json()
        own = {"images": files, "labels": [*NAMES], "seed": 3, "top_k": 2, "truncate": None}
        found = http.post("/v1/classify", json=form | own)
        assert found.status_code == 200, found.text
        described_form = {"labels": LABELS, "method": "zero_shot", "descriptions": json.dumps(described)}
        by_form = http.post("/v1/classify", data=described_form, files=uploads(sent[:1])).json()
        own = {"images": coded[:1], "descriptions": described}
        by_json = http.post("/v1/classify", json=described_form | own).json()
        page = http.post("/v1/explain", json={"image": coded[0], "labels": [*NAMES], "format": "html"})
    assert comparable(found.json()["answers"]) == comparable(expected["answers"])
    assert [entry["path"] for entry in found.json()["answers"]] == [path.name for path in sent[:4]]
    assert found.json()["run"] == expected["run"]
    assert by_json["answers"][0]["top5"] == by_form["answers"][0]["top5"]
    assert by_json["answers"][0]["path"] == "image"
    assert page.headers["content-type"].startswith("text/html")


def test_odd_class_names_are_warned_of(service: Running, sent: list[Path]) -> None:
    with service.http() as http:
        response = http.post("/v1/classify", data={"labels": "cat,cat,dog"}, files=uploads(sent[:1]))
    assert response.json()["warnings"][0].startswith("class names given more than once: cat")


def test_an_explanation_has_what_the_page_of_explain_has(
    service: Running, sent: list[Path], model_words: tuple[str, ...], tmp_path: Path
) -> None:
    words = (*model_words, "--labels", ",".join(NAMES), "--set", "masks=8", "--out", str(tmp_path / "why"))
    assert main(["explain", str(sent[0]), *words]) == 0
    manifest = json.loads((tmp_path / "why" / "manifest.json").read_text())
    with service.http() as http:
        document = http.post("/v1/explain", data={"labels": LABELS}, files=uploads(sent[:1], "image")).json()
        page = http.post("/v1/explain", data={"labels": LABELS, "format": "html"}, files=uploads(sent[:1], "image"))
    ignored = ("files", "source", "versions")
    assert {key: document[key] for key in manifest if key not in ignored} == {
        key: value for key, value in manifest.items() if key not in ignored
    }
    assert document["source"] == sent[0].name
    for name, text in document["pictures"].items():
        picture = Image.open(io.BytesIO(base64.b64decode(text.removeprefix("data:image/png;base64,"))))
        file = tmp_path / "why" / "pieces" / f"{name}.png"
        assert file.exists() == (not name.startswith(("map_", "contrast_")))
        if file.exists():
            assert np.array_equal(np.asarray(picture), np.asarray(Image.open(file)))
    count = len(document["candidates"])
    assert [one["name"] for one in document["maps"]] == [one["name"] for one in document["candidates"]]
    assert len(document["contrasts"]) == count * (count - 1) // 2
    assert page.headers["content-type"].startswith("text/html")
    assert "<script" not in page.text
    assert "pieces/" not in page.text
    assert document["in_words"].split(".")[0] in page.text
    assert document["headline"].startswith(document["answer"])


def test_a_request_says_what_is_seen_of_a_long_photo(service: Running, sent: list[Path]) -> None:
    with service.http() as http:
        form = {"labels": LABELS, "plain": "pad", "method": "zero_shot"}
        run = http.post("/v1/classify", data=form, files=uploads(sent[:1])).json()["run"]
        del form["method"]
        document = http.post("/v1/explain", data=form, files=uploads(sent[:1], "image")).json()
    assert (run["views"]["plain"], run["views"]["count"]) == ("pad", 8)
    assert document["run"]["plain"] == "pad"
    assert document["seen"].startswith("the whole of it")
    image = np.asarray(Image.open(io.BytesIO(base64.b64decode(document["pictures"]["image"].partition(",")[2]))))
    assert image[0].max() == 0 < image[len(image) // 2].max()


def test_grey_maps_are_the_evidence_to_eight_bits(
    service: Running, sent: list[Path], model_words: tuple[str, ...], tmp_path: Path
) -> None:
    words = (*model_words, "--labels", ",".join(NAMES), "--set", "masks=8", "--out", str(tmp_path / "why"))
    assert main(["explain", str(sent[1]), *words]) == 0
    arrays = read_arrays(tmp_path / "why" / "pieces" / "arrays.npz")
    exact = {NAMES[index]: arrays["evidence"][row] for row, index in enumerate(arrays["candidates"])}
    with service.http() as http:
        document = http.post("/v1/explain", data={"labels": LABELS}, files=uploads(sent[1:2], "image")).json()
    assert document["maps"]
    for one in document["maps"]:
        text = document["pictures"][one["picture"]].partition(",")[2]
        grey = np.asarray(Image.open(io.BytesIO(base64.b64decode(text)))).astype(float)
        assert grey.shape == exact[one["name"]].shape
        nats = one["low"] + grey / 255 * (one["high"] - one["low"])
        assert np.abs(nats - exact[one["name"]]).max() <= 0.51 * (one["high"] - one["low"]) / 255 + 1e-9


def test_what_a_request_may_name_is_listed(service: Running) -> None:
    with service.http() as http:
        methods = {one["name"]: one for one in http.get("/v1/methods").json()["methods"]}
        models = http.get("/v1/models").json()
        assert http.get("/healthz").json() == {"status": "alive"}
        assert http.get("/readyz").json() == {"status": "ready"}
    assert [name for name, one in methods.items() if one["default"]] == ["fcl"]
    assert methods["fcl"]["settings"]["masks"] == 8  # as the service was started
    assert methods["mta"]["uses_views"]
    assert not methods["zero_shot"]["uses_views"]
    assert "tda" not in methods  # its answers would depend on requests before
    assert models["model"]["backbone"] == "local-dir:clip"
    assert models["limits"]["images"] == 30
