"""The model of the service and its label sets: what a request asks for becomes what answers its images."""

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from faircontext.errors import ArgumentError
from faircontext.labels import LabelSpace
from faircontext.methods import list_methods
from faircontext.methods.base import METHODS
from faircontext.methods.stream import is_stream
from faircontext.names import check_name, name_warnings, parse_labels, split_labels
from faircontext.prompt_files import parse_descriptions
from faircontext.runs.answer import Predictor
from faircontext.runs.build import build, create_methods, load, recipe_of
from faircontext.runs.option_parts import PromptChoice, check_no_stream
from faircontext.runs.options import ClassifyOptions
from faircontext.runs.records import method_of, split_methods
from faircontext.serve.forms import ClassifyForm, ExplainForm, LabelFields
from faircontext.serve.options import ServeOptions, without_folders
from faircontext.serve.refusals import Refused, blamed_on

MAX_LABELS, MAX_LETTERS = 2_000, 200
"""Class names in a request, and letters of each."""

_MAX_PROMPTS = 16_000
"""Of all class names together: what is encoded before the first image of a new label set is answered."""

_MAX_CACHED = 2 * _MAX_PROMPTS
"""Prompts whose features are kept for requests to come."""

_MAX_SETTING = 1_000
"""The largest whole number that a setting may be: masks, steps and candidates are what an answer costs."""

_MAX_WORDS = 20
"""Methods in a request."""


@dataclass(frozen=True)
class Request:
    """What a request asks for.

    Attributes:
        options: those of `classify`, as the answer tells them.
        predictor: what answers its images.
        warnings: what a person should know about the class names.
    """

    options: ClassifyOptions
    predictor: Predictor
    warnings: tuple[str, ...]

    @property
    def uses_views(self) -> bool:
        """Whether its images are adapted, one at a time."""
        return self.predictor.sees_views


class Service:
    """A loaded model, its label sets, and the label spaces of the last requests.

    Args:
        options: of the service, checked.
        sets: class names of the label sets.

    Raises:
        FairContextError: an option has a value that cannot be used.
    """

    def __init__(self, options: ServeOptions, sets: Mapping[str, tuple[str, ...]]) -> None:
        self.options, self.sets = options, sets
        model = load(options)
        self.model = replace(
            model, context=model.context and replace(model.context, source=Path(model.context.source).name)
        )
        self._lock = threading.Lock()
        self._pinned: dict[tuple[Any, ...], LabelSpace] = {}
        self._recent: OrderedDict[tuple[Any, ...], LabelSpace] = OrderedDict()
        for names in self.sets.values():
            choice = options.choose_prompts(names)
            space = self.model.space(names, choice, options.truncate)
            space.text  # noqa: B018 (encoded before the port opens)
            self._pinned[names, choice, options.truncate] = space

    def describe_methods(self) -> list[dict[str, Any]]:
        """Return name, summary, default settings and use of views of each method that a request may ask for."""
        backbone = self.model.backbone
        able = (name for name in list_methods() if METHODS[name].needs <= backbone.capabilities)
        names = [name for name in able if not is_stream(name)]  # see `check_no_stream`
        created = create_methods(self.options, backbone)
        for name in (name for name in names if name not in created):
            created |= create_methods(replace(self.options, method=name, set=()), backbone)
        return [
            {
                "name": name,
                "summary": METHODS[name].summary,
                "uses_views": METHODS[name].uses_views,
                "default": name in split_methods(self.options.method),
                "settings": asdict(created[name]),
            }
            for name in names
        ]

    def describe_model(self) -> dict[str, Any]:
        """Return what is told of the backbone."""
        backbone, options = self.model.backbone, without_folders(self.options.for_request())
        return {
            "backbone": options.backbone,
            "pretrained": options.pretrained,
            "precision": backbone.precision,
            "device": backbone.device.type,
            "image_size": backbone.image_size,
            "capabilities": sorted(backbone.capabilities),
            "preset": options.preset,
            "views": recipe_of(self.options, backbone).count,
        }

    def request(self, form: ClassifyForm | ExplainForm) -> Request:
        """Return what answers a request; this tokenises its class names, and takes no features.

        Raises:
            Refused: a field has a value that cannot be used.
        """
        names, field = self._names(form)
        methods = ["fcl"] if isinstance(form, ExplainForm) else self._methods(form)
        options = self._options(form, ",".join(methods))
        with blamed_on("settings"):
            self._check_settings(form, options)
        choice = _prompts_of(form, options, names)
        with blamed_on("unknown"):
            options.check_decision(methods)
        with blamed_on(field):
            space = self._space(names, choice, options.truncate)
            predictor = build(options, self.model, names, options.regime, labels=space)
        return Request(without_folders(options), predictor, (*name_warnings(names), *predictor.warnings()))

    def _names(self, form: LabelFields) -> tuple[tuple[str, ...], str]:
        """Return the class names of a request, and the field that gives them."""
        fields = [name for name in ("labels", "labels_file", "label_set") if getattr(form, name) is not None]
        if not fields and len(self.sets) == 1:
            return next(iter(self.sets.values())), "label_set"
        if len(fields) != 1:
            what = f"given as {' and '.join(fields)}" if fields else "missing"
            known = f" ({', '.join(self.sets)})" if self.sets else ""
            message = f"invalid labels: {what}; give one of labels, labels_file and label_set{known}"
            raise Refused(422, "invalid", fields[-1] if fields else "labels", message)
        (field,) = fields
        if form.label_set is not None:
            if form.label_set not in self.sets:
                known = ", ".join(self.sets) or "none: the service was started without"
                raise Refused(422, "invalid", field, f"invalid label_set {form.label_set[:60]!r}: known: {known}")
            return self.sets[form.label_set], field
        with blamed_on(field):
            names = self._read_names(form)
            if len(names) > MAX_LABELS:
                raise ArgumentError(f"invalid {field}: {len(names):,} class names, at most {MAX_LABELS:,}")
            for position, name in enumerate(names, 1):
                check_name(position, name)
                if len(name) > MAX_LETTERS:
                    what = f"class name number {position} has {len(name):,} letters, at most {MAX_LETTERS}"
                    raise ArgumentError(f"invalid {field}: {what}")
        return names, field

    @staticmethod
    def _read_names(form: LabelFields) -> tuple[str, ...]:
        if form.labels_file is not None:
            content = form.labels_file.file.read()
            try:
                return split_labels(content.decode("utf-8-sig"), "labels_file")
            except UnicodeDecodeError:
                raise ArgumentError("invalid labels_file: must be text in UTF-8") from None
        text = (form.labels or "").removeprefix("\ufeff")  # the byte order mark of a file that was sent as text
        return split_labels(text, "labels") if "\n" in text else parse_labels(text, "labels")

    def _methods(self, form: ClassifyForm) -> list[str]:
        methods = split_methods(self.options.method if form.method is None else form.method)
        if len(methods) > _MAX_WORDS:
            raise Refused(422, "invalid", "method", f"invalid method: {len(methods)} names, at most {_MAX_WORDS}")
        with blamed_on("method"):
            check_no_stream(methods)
            for label in methods if methods != ["all"] else ():
                method = METHODS[method_of(label)]
                if method.analysis:
                    raise ArgumentError(f"invalid method {label!r}: it is an analysis; see /v1/methods")
                method.check(self.model.backbone)
        return methods

    def _options(self, form: ClassifyForm | ExplainForm, method: str) -> ClassifyOptions:
        """Return the options of `classify` that a request comes to."""
        chosen: dict[str, Any] = {
            name: getattr(form, name) for name in ("preset", "seed", "truncate") if getattr(form, name) is not None
        }
        if form.plain is not None:
            others = (word for word in self.options.views if not word.startswith("plain="))
            chosen["views"] = (*others, f"plain={form.plain}")
        words = tuple(word for line in form.settings for word in line.split())
        chosen["set"] = words if form.settings else self._started_with(method)
        if isinstance(form, ClassifyForm):
            chosen |= {"unknown": form.unknown, "top": form.top_k}
            if form.prompts is not None or form.template or form.descriptions is not None:  # in place of the service's
                prompts = {"prompts": form.prompts, "template": tuple(form.template)}
                chosen |= {**prompts, "templates": None, "descriptions": None}
        return self.options.for_request(method=method, **chosen)

    def _started_with(self, methods: str) -> tuple[str, ...]:
        """Return the settings that the service was started with, where a request names no other methods and none."""
        return self.options.set if methods == self.options.method else ()

    def _check_settings(self, form: LabelFields, options: ClassifyOptions) -> None:
        """Check the settings of a request, which are bounded and name nothing outside it."""
        methods = create_methods(options, self.model.backbone)
        for label, method in methods.items() if form.settings else ():
            hints = get_type_hints(type(method))
            for name, value in asdict(method).items():
                plain = getattr(type(method)(), name)
                if isinstance(value, str) and value != plain and _takes_any_word(hints[name]):
                    raise ArgumentError(f"invalid {name} of {label}: must be chosen when the service is started")
                numbers = value if isinstance(value, tuple) else (value,)
                if any(isinstance(number, int) and number > _MAX_SETTING for number in numbers):
                    raise ArgumentError(f"invalid {name} {value} of {label}: must be at most {_MAX_SETTING:,}")

    def _space(self, names: tuple[str, ...], choice: PromptChoice, truncate: bool) -> LabelSpace:
        """Return a label space: of a set, of the last requests, or a new one, whose features no disk gets."""
        key = (names, choice, truncate)
        with self._lock:
            if (known := self._pinned.get(key) or self._recent.get(key)) is not None:
                if key in self._recent:
                    self._recent.move_to_end(key)
                return known
        space = self.model.space(names, choice, truncate, stored=False)
        with self._lock:
            self._recent[key] = space
            while sum(_count(len(names), choice) for names, choice, _ in self._recent) > _MAX_CACHED:
                self._recent.popitem(last=False)
        return space


def _prompts_of(form: ClassifyForm | ExplainForm, options: ClassifyOptions, names: Sequence[str]) -> PromptChoice:
    """Return the prompts of a request."""
    described = None
    if isinstance(form, ClassifyForm) and form.descriptions is not None:
        with blamed_on("descriptions"):
            described = parse_descriptions(form.descriptions, names, "invalid descriptions")
    with blamed_on("template"):
        choice = options.choose_prompts(names, described=described)
    if (count := _count(len(names), choice)) > _MAX_PROMPTS:
        message = f"invalid prompts: {count:,} of {len(names):,} class names, at most {_MAX_PROMPTS:,} in all"
        raise Refused(422, "invalid", "prompts", message)
    return choice


def _count(names: int, choice: PromptChoice) -> int:
    """Return how many prompts there are of some class names."""
    return names * len(choice.templates) + sum(map(len, choice.descriptions or ()))


def _takes_any_word(hint: Any) -> bool:
    """Tell whether a setting takes any word, such as the name of another model, in place of one of a few."""
    return hint is str or (get_origin(hint) is not Literal and str in get_args(hint))
