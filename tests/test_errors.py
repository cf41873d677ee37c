import copy
import math
import pickle
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import jaxtyping
import numpy as np
import pytest
import torch

from faircontext.errors import (
    ArgumentError,
    FairContextError,
    ImageError,
    LabelError,
    LongPromptError,
    and_more,
    check_choice,
    check_interval,
    check_minimum,
    check_type,
    counted,
    lines_and_more,
    unknown_name,
)
from faircontext.evidence import Evidence, Masks, common_evidence
from faircontext.explore import explore
from faircontext.occlusion import occlude


@contextmanager
def unchecked() -> Iterator[None]:
    """Call as a user does: without the run-time type checks of the tests, which would come first."""
    jaxtyping.config.update("jaxtyping_disable", True)
    try:
        yield
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize(
    ("error", "builtin"),
    [(ArgumentError("m"), ValueError), (LabelError("m"), ValueError), (ImageError("a.jpg", "m"), OSError)],
)
def test_every_error_is_a_faircontext_error_and_its_builtin_kind(error, builtin):
    assert isinstance(error, FairContextError)
    assert isinstance(error, builtin)


def test_an_image_error_names_the_file_and_keeps_path_and_reason():
    error = ImageError("photos/a.jpg", "the file is empty")
    assert str(error) == "photos/a.jpg: the file is empty"
    assert (error.path, error.reason) == ("photos/a.jpg", "the file is empty")


@pytest.mark.parametrize("duplicate", [copy.copy, lambda error: pickle.loads(pickle.dumps(error))])
@pytest.mark.parametrize("error", [ImageError("a.jpg", "the file is empty"), ArgumentError("m"), LabelError("m")])
def test_errors_can_be_copied_and_sent_between_processes(error, duplicate):
    other = duplicate(error)
    assert type(other) is type(error)
    assert str(other) == str(error)
    assert vars(other) == vars(error)


def test_an_unknown_name_comes_with_the_close_ones():
    error = unknown_name("method", "fkl", ["zero_shot", "tpt", "fcl"])
    assert isinstance(error, ArgumentError)
    assert str(error) == "unknown method 'fkl'; did you mean 'fcl'?"


def test_several_close_names_are_offered_the_closest_first_and_at_most_three():
    error = unknown_name("backbone", "lite", ["lite2", "lite", "lite0", "lite1", "ViT-B-16"])
    message = str(error)
    assert message.startswith("unknown backbone 'lite'; did you mean 'lite' or 'lite")
    assert message.count("'lite") == 4
    assert "ViT" not in message


def test_all_names_are_listed_in_order_where_none_is_close():
    assert str(unknown_name("method", "xyz", ["tpt", "fcl"])) == "unknown method 'xyz'; known: fcl, tpt"


def test_a_choice_is_one_of_the_choices():
    check_choice("aggregation", "vote", ("vote", "mean"))
    with pytest.raises(ArgumentError, match=r"^aggregation='sum' is not possible; use one of 'vote', 'mean'$"):
        check_choice("aggregation", "sum", (name for name in ("vote", "mean")))


@pytest.mark.parametrize("value", [0, 1, 2.5, 10**12])
def test_a_number_of_at_least_the_minimum_passes(value):
    check_minimum("steps", value, 0)


@pytest.mark.parametrize("value", [-1, -1e-9, math.nan, math.inf])
def test_a_number_below_the_minimum_names_the_argument(value):
    with pytest.raises(ArgumentError) as caught:
        check_minimum("steps", value, 0)
    assert str(caught.value) == f"steps={value!r} is not possible; it must be a number of at least 0"


@pytest.mark.parametrize("value", [1e-9, 0.3, 1.0, 1, (0.2, 0.5), (0.5, 0.5), (0.1, 1.0)])
def test_an_interval_has_an_open_lower_and_a_closed_upper_end(value):
    check_interval("gamma", value, 0.0, 1.0)


@pytest.mark.parametrize("value", [0.0, -0.1, 1.0001, math.nan])
def test_a_number_outside_an_interval_names_the_argument(value):
    with pytest.raises(ArgumentError) as caught:
        check_interval("rho", value, 0.0, 1.0)
    assert str(caught.value) == f"rho={value!r} is not possible; it must lie above 0.0 and at most at 1.0"


@pytest.mark.parametrize("value", [(0.5, 0.2), (0.0, 0.5), (0.5, 1.1), (math.nan, 0.5), (0.5, math.nan), (0.5,)])
def test_a_range_outside_an_interval_names_the_argument_and_the_order(value):
    with pytest.raises(ArgumentError) as caught:
        check_interval("gamma", value, 0.0, 1.0)
    assert str(caught.value) == (
        f"gamma={value!r} is not possible; it must lie above 0.0 and at most at 1.0, the smaller end first"
    )


IMAGE, MASK = torch.zeros(3, 2, 2), torch.zeros(1, 2, 2, dtype=torch.bool)
PAIR = torch.tensor([[0], [1]])


@pytest.mark.parametrize(
    ("argument", "call"),
    [
        ("aggregation", lambda: explore(torch.eye(2), torch.eye(2), 1.0, 1, aggregation="other")),
        ("occluder", lambda: occlude(IMAGE, MASK, "other")),
        ("evidence_scaling", lambda: common_evidence(torch.zeros(2, 2, 2), PAIR, "other")),
        ("estimator", lambda: Evidence(torch.zeros(1, 1), Masks((MASK[0],)), 2, 2, "other")),
    ],
)
def test_functions_name_the_argument_with_an_impossible_choice(argument: str, call: Callable[[], object]):
    with unchecked(), pytest.raises(ArgumentError, match=f"^{argument}='other' is not possible; use one of "):
        call()


@pytest.mark.parametrize(
    ("path", "shown"), [("a\nb.jpg", r"a\nb.jpg"), ("a\udcff.jpg", r"a\udcff.jpg"), ("é.jpg", "é.jpg")]
)
def test_a_message_is_one_line_that_can_be_shown_whatever_the_path(path, shown):
    error = ImageError(path, "the file is empty")
    assert str(error) == f"{shown}: the file is empty"
    assert error.path == path


def test_a_wrong_type_names_the_argument_and_both_types():
    check_type("seed", 3, int)
    check_type("recipe", None, (str, type(None)))
    with pytest.raises(ArgumentError, match=r"^seed is of type bool, not int$"):
        check_type("seed", True, int)
    with pytest.raises(ArgumentError, match=r"^path is of type list, not str or int; use load_image$"):
        check_type("path", [], (str, int), "use load_image")


def test_the_first_few_and_how_many_more():
    assert and_more(["a", "b"], 2) == "a, b"
    assert and_more(["a", "b", "c"], 1, "; ") == "a and 2 more"
    assert lines_and_more([3, 1, 2], 3, str, "{} more") == ["3", "1", "2"]
    assert lines_and_more([0] * 1002, 1, "no. {}".format, "{} others") == ["no. 0", "1,001 others"]
    assert lines_and_more([], 1, str, "{} more") == []


def wrong_calls():
    from faircontext import Episode, LabelSpace, create_backbone, create_method, load_image

    image = np.zeros((4, 4, 3), np.uint8)
    return {
        "name is of type NoneType, not str": lambda _: create_backbone(None),
        "batch_size is of type str, not int": lambda _: create_backbone(batch_size="16"),
        "name is of type int, not str": lambda _: create_method(3),
        "backbone is of type str, not Backbone": lambda _: create_method("fcl", preset="recommended", backbone="lite0"),
        "backbone is of type str, not Backbone; create": lambda _: LabelSpace(["cat"], "lite0"),
        "path is of type ndarray, not str or PathLike": lambda _: load_image(image),
        "max_pixels is of type str, not int": lambda _: load_image("a.jpg", max_pixels="9"),
        "labels is of type list, not LabelSpace": lambda _: Episode(image, ["cat"]),
        "recipe is of type str, not ViewRecipe or NoneType": lambda labels: Episode(image, labels, "paper"),
        "seed is of type str, not int or integer": lambda labels: Episode(image, labels, seed="0"),
        "image is of type list, not ndarray; use load_image": lambda labels: Episode([[0]], labels),
        "template=1 is not possible; there are 1": lambda labels: create_method("fcl").adapt(Episode(image, labels), 1),
    }


@pytest.mark.parametrize("message", wrong_calls())
def test_a_wrong_call_from_python_is_named(message, labels):
    with unchecked(), pytest.raises(FairContextError, match=f"^{re.escape(message)}"):
        wrong_calls()[message](labels)


def test_counts_have_their_nouns_in_the_plural_unless_they_are_one() -> None:
    assert [counted(n, "image") for n in (0, 1, 2, 12345)] == ["0 images", "1 image", "2 images", "12,345 images"]
    assert [counted(1, noun) for noun in ("class", "batch")] == ["1 class", "1 batch"]
    assert [counted(2, noun) for noun in ("class", "batch")] == ["2 classes", "2 batches"]


def test_a_long_prompt_comes_through_processes_as_it_was() -> None:
    error = LongPromptError("prompt 'a' has 99 tokens", "a b c")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), str(back), back.prompt) == (LongPromptError, str(error), "a b c")
