"""How the images of a request are computed: answered as `classify` does, or explained as `explain` does."""

import base64
import io
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import combinations
from typing import Any

import numpy as np
import PIL.Image
from starlette.datastructures import UploadFile

from faircontext.backbones.engines import ROW_MULTIPLE
from faircontext.datasets.spec import Sample
from faircontext.errors import one_line
from faircontext.report.explain import (
    Explanation,
    describe_explanation,
    describe_map,
    draw_explanation,
    explain,
    map_pixels,
    write_page,
)
from faircontext.runs.answer import Question, answer_prepared
from faircontext.runs.decisions import AnsweredImage
from faircontext.runs.outputs import describe_run
from faircontext.runs.prepare import prepare_image
from faircontext.serve.metrics import Metrics
from faircontext.serve.queue import Job, Unit
from faircontext.serve.service import Request
from faircontext.sources import Content
from faircontext.system import usable_processors
from faircontext.types import headline

_LONGEST_NAME = 255

_MAX_DECODED = 256 * 2**20
"""Bytes of pixels that are held at once, besides those of the last image."""

_MAX_CONTRASTS = 15
"""Pairs of candidates whose contrasts are drawn: those of six; of more candidates, the best against each other."""


class ClassifyJob(Job):
    """Images to be answered.

    Args:
        request: what answers them.
        files: what was sent.
        top_k: how many classes are told in `top`.
    """

    def __init__(self, request: Request, files: Sequence[UploadFile], top_k: int) -> None:
        super().__init__(len(files), batched=not request.uses_views)
        self._request, self._files, self._top_k = request, files, top_k
        self._entries: list[list[dict[str, Any]]] = [[] for _ in files]

    def prepare(self, index: int) -> Question:
        """Read an image and make its plain view."""
        predictor, options, content = self._request.predictor, self._request.options, content_of(self._files[index])
        geometry = predictor.labels.backbone.geometry
        image = prepare_image(partial(options.reader(), content), geometry, predictor.recipe, options.seed)
        return Sample(content.name, content), predictor, image

    def put(self, index: int, answered: AnsweredImage) -> None:
        """Keep an image's entries, one for each method."""
        predictor = self._request.predictor
        names = predictor.labels.names
        entries = [predictor.decision.entry(answer, names) for answer in answered.answers]
        if answered.reference is not None:
            plain = answered.reference.probabilities
            for entry, answer in zip(entries, answered.answers, strict=True):
                best = [(names[index], probability) for index, probability in answer.best(2)]
                entry["headline"] = headline(best if answer.prediction else [])
                entry["top"] = [
                    {"index": index, "name": names[index], "probability": probability, "zero_shot": float(plain[index])}
                    for index, probability in answer.best(self._top_k)
                ]
        self._entries[index] = entries

    def document(self) -> dict[str, Any]:
        """Return what `classify --json` writes, with warnings about the class names."""
        request = self._request
        head = describe_run(request.options, request.predictor, dict.fromkeys(request.predictor.methods))
        answers = [entry for entries in self._entries for entry in entries]
        return {**head, "warnings": list(request.warnings), "answers": answers}


class ExplainJob(Job):
    """An image to be explained.

    Args:
        request: what answers it.
        file: what was sent.
        html: whether the page is wanted, in place of the numbers.
    """

    def __init__(self, request: Request, file: UploadFile, html: bool) -> None:
        super().__init__(1, batched=False)
        self._request, self._file, self._html = request, file, html
        self._document: dict[str, Any] = {}

    def compute(self) -> None:
        """Explain the image.

        Raises:
            ImageError: it cannot be read.
        """
        request, content = self._request, content_of(self._file)
        explanation = explain(request.options, request.predictor, content.name, request.options.reader()(content))
        pictures = {key: _png(pixels) for key, pixels in draw_explanation(explanation).items()}
        if self._html:
            self._document = {"html": write_page(explanation, pictures, beside=False)}
            return
        document = describe_explanation(explanation)
        contrasts, drawn = _contrasts(explanation)
        maps, grey = _maps(explanation)
        document |= {"contrasts": contrasts, "maps": maps, "pictures": {**pictures, **drawn, **grey}}
        document["warnings"] = [*document["warnings"], *request.warnings]
        self._document = document

    def document(self) -> dict[str, Any]:
        """Return what the page shows, with its pictures; or the page."""
        return self._document


class Computer:
    """Computes units of jobs; see `WorkQueue`."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._processors = usable_processors()

    def __call__(self, units: Sequence[Unit]) -> None:
        """Compute units, and leave the results with their jobs."""
        if isinstance(job := units[0].job, ExplainJob):
            job.compute()
            self._metrics.images.labels("explained").inc()
            return
        rest = [unit for unit in units if not unit.job.done.cancelled()]
        while rest:
            rest = self._answer_some(rest)

    def _answer_some(self, units: list[Unit]) -> list[Unit]:
        """Answer units together as far as their pixels find room, and return the others."""
        prepared: list[Question] = []
        # Readers end before images are encoded; see `call_in_own_thread`.
        with ThreadPoolExecutor(min(ROW_MULTIPLE, self._processors), "faircontext-reader") as readers:
            while len(prepared) < len(units) and sum(map(_size, prepared)) < _MAX_DECODED:
                window = units[len(prepared) : len(prepared) + self._processors]
                prepared += readers.map(_prepare, window)
        # An image's features, and with them its answer, do not depend on the images beside it.
        for unit, answered in zip(units, answer_prepared(prepared), strict=False):
            assert isinstance(unit.job, ClassifyJob)
            unit.job.put(unit.index, answered)
            self._metrics.images.labels("unreadable" if answered.error else "answered").inc()
        return units[len(prepared) :]


def _prepare(unit: Unit) -> Question:
    assert isinstance(unit.job, ClassifyJob)
    return unit.job.prepare(unit.index)


def _size(prepared: Question) -> int:
    views = prepared[2].views
    return 0 if views is None else views.nbytes


def content_of(file: UploadFile) -> Content:
    """Return a file that was sent, by what it is called in answers."""
    name = one_line((file.filename or "").replace("\\", "/").rpartition("/")[2])[:_LONGEST_NAME] or "image"
    file.file.seek(0)
    return Content(name, file.file.read())


def _png(pixels: np.ndarray) -> str:
    """Return pixels as the address of a PNG file that holds itself."""
    file = io.BytesIO()
    PIL.Image.fromarray(pixels).save(file, "PNG")
    return f"data:image/png;base64,{base64.b64encode(file.getvalue()).decode('ascii')}"


def _contrasts(explanation: Explanation) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the evidence of candidates against each other, by their positions in the list of candidates."""
    adaptation, names = explanation.adaptation, explanation.episode.labels.names
    if (evidence := adaptation.evidence) is None:
        return [], {}
    order = adaptation.after.ranking.tolist()
    described, pictures = [], {}
    for first, second in list(combinations(range(len(order)), 2))[:_MAX_CONTRASTS]:
        contrast = evidence.contrast(order[first], order[second])
        picture = f"contrast_{first:02}_{second:02}"
        (pixels,) = map_pixels(explanation.episode, contrast, [0])
        pictures[picture] = _png(pixels)
        pair = [names[int(adaptation.candidates[order[position]])] for position in (first, second)]
        described.append({"first": pair[0], "second": pair[1], **describe_map(picture, contrast.reliability)})
    return described, pictures


def _maps(explanation: Explanation) -> tuple[list[dict[str, Any]], dict[str, str]]:
    """Return the candidates' evidence in 8 bits, from the least (black) to the largest value (white), in nats."""
    adaptation, names = explanation.adaptation, explanation.episode.labels.names
    if (evidence := adaptation.evidence) is None:
        return [], {}
    described, pictures = [], {}
    for rank, position in enumerate(adaptation.after.ranking.tolist()):
        values = evidence.maps[position].cpu().double().numpy()
        low, high = float(values.min()), float(values.max())
        scaled = np.rint((values - low) * (255.0 / (high - low) if high > low else 0.0)).astype(np.uint8)
        pictures[f"map_{rank:02}"] = _png(scaled)
        name = names[int(adaptation.candidates[position])]
        described.append({"name": name, "picture": f"map_{rank:02}", "low": low, "high": high})
    return described, pictures
