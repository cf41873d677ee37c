"""ECEC, EUEC, decomposition and margins: closed forms, the margin's bound as a property, and an oracle in float64."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, strategies as st
from hypothesis.extra.numpy import arrays

from faircontext import Backbone, Episode, LabelSpace, ViewRecipe, create_method
from faircontext.analysis import (
    Ambiguity,
    CommonEvidence,
    Decomposition,
    Gallery,
    Margin,
    UniqueEvidence,
    list_analyses,
)
from faircontext.analysis.contribution import EPSILON, ecec, euec, margin, margin_bound, pair_decisions
from faircontext.errors import LabelError
from faircontext.methods import FCL, FCLVariants, list_methods
from faircontext.metrics.scores import COMPOSED_WEIGHT, reconstruction_bound
from faircontext.runs.records import ANALYSES
from faircontext.types import MAP_SIDE, read_maps
from helpers import CLASSES, assert_same_answer
from oracles import evidence as oracle

MakeEpisode = Callable[..., Episode]
SMALL = {"masks": 8, "k": 4, "beta": 5.0}


def unit(*values: float) -> torch.Tensor:
    return torch.nn.functional.normalize(torch.tensor(values), dim=-1)


def test_ecec_in_closed_form() -> None:
    text = torch.eye(3)
    rivals = torch.tensor([[0, 0], [1, 2]])
    image = torch.tensor([0.8, 0.6, 0.0])  # margins 0.2 and 0.8
    common = torch.tensor([[0.6, 0.8, 0.0], [0.5, 0.0, 0.1]])  # -0.2, which counts as 0, and 0.4
    assert ecec(common, image, text, rivals) == pytest.approx(0.4 / (0.2 + 0.8), rel=1e-6)


def test_a_tie_is_divided_by_epsilon() -> None:
    text, rivals = torch.stack([unit(1.0, 0.0), unit(0.0, 1.0)]), torch.tensor([[0], [1]])
    assert ecec(torch.tensor([[0.3, 0.1]]), unit(1.0, 1.0), text, rivals) == pytest.approx(0.2 / EPSILON, rel=1e-4)


def test_euec_is_a_mean_of_cosines() -> None:
    assert euec(torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.6, 0.8]]), torch.tensor([0.0, 1.0])) == pytest.approx(0.6)


def test_the_papers_sum_of_proxies_cannot_reach_what_it_reports() -> None:
    assert reconstruction_bound(0.7283, 0.6390, 0.6516) == pytest.approx(0.8495, abs=5e-5)
    assert reconstruction_bound(1.0, 1.0, 1.0) == 1.0
    assert reconstruction_bound(0.0, 0.0, 0.0) == 0.0
    assert reconstruction_bound(0.999, 0.0, 0.0) == pytest.approx(1.0)  # the rests can cancel
    assert reconstruction_bound(1.0, 1.0, 0.0) == pytest.approx(1.1 / math.hypot(1.1, 0.1))  # one alone cannot
    assert reconstruction_bound(1.0 + 1e-7, 1.0, 1.0) == pytest.approx(1.0)


@given(arrays(np.float64, (4, 5), elements=st.floats(-1, 1)).filter(lambda rows: (np.abs(rows).sum(1) > 0.1).all()))
def test_no_unit_vectors_exceed_the_bound(rows: np.ndarray) -> None:
    z, common, first, second = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    composed = common + COMPOSED_WEIGHT * (first + second)
    cosine = composed @ z / np.linalg.norm(composed)
    cosines = np.clip([common @ z, first @ z, second @ z], -1.0, 1.0)
    assert cosine <= reconstruction_bound(*cosines) + 1e-7


def test_the_bound_is_reached() -> None:
    def vector(cosine: float, side: float) -> np.ndarray:
        return np.array([cosine, side * math.sqrt(1 - cosine**2)])

    composed = vector(0.7283, 1) + COMPOSED_WEIGHT * (vector(0.6390, -1) + vector(0.6516, -1))
    assert composed[0] / np.linalg.norm(composed) == pytest.approx(reconstruction_bound(0.7283, 0.6390, 0.6516))


@given(arrays(np.float64, st.integers(2, 30), elements=st.floats(-100, 100)), st.data())
def test_probability_is_never_below_the_margins_bound(scores: np.ndarray, data: st.DataObject) -> None:
    index = data.draw(st.integers(0, len(scores) - 1))
    row = torch.from_numpy(scores)
    found = margin(row, index)
    assert float(found) == scores[index] - np.delete(scores, index).max()
    bound = float(margin_bound(found, len(scores)))
    assert float(row.softmax(-1)[index]) >= bound * (1 - 1e-9)
    assert bound == pytest.approx(1 / (1 + (len(scores) - 1) * math.exp(-float(found))), rel=1e-9)


@given(st.floats(-20, 20), st.floats(-20, 20), st.integers(2, 1000))
def test_the_bound_is_reached_where_all_rivals_tie(own: float, rival: float, classes: int) -> None:
    scores = torch.full((classes,), rival, dtype=torch.float64)
    scores[0] = own
    bound = float(margin_bound(margin(scores, 0), classes))
    assert float(scores.softmax(-1)[0]) == pytest.approx(bound, rel=1e-9)


def test_the_only_class_has_no_rival() -> None:
    assert margin(torch.zeros(1), 0) == math.inf
    assert margin_bound(torch.tensor(math.inf), 1) == 1.0


@pytest.fixture(scope="module")
def episode(photos: dict[str, np.ndarray], make_episode: MakeEpisode, lite_fp32: Backbone) -> Episode:
    return make_episode(photos["astronaut"], LabelSpace(CLASSES, lite_fp32))


class Oracle:
    """The quantities of an image from pixel loops in float64; only the encoders are the package's."""

    def __init__(self, episode: Episode, masks: int, k: int, beta: float) -> None:
        self.episode = episode
        self.tau = episode.labels.text[0].double().numpy()
        self.z = episode.z.double().numpy()
        self.beta = beta
        self.predicted = int((self.tau @ self.z).argmax())
        found = create_method("fcl", calibrate=False, k=k, beta=beta)(episode).candidates
        self.candidates = list(found) if self.predicted in found else [*found[:-1], self.predicted]
        drawn, _ = episode.masked_features(masks, (7, 9, 11, 13), 0.5, "black")
        size = episode.x.shape[-1]
        self.masks = [oracle.occluded(cells.numpy(), size, size) for cells in drawn.cells]
        self.maps = self.maps_of(self.candidates)

    def maps_of(self, classes: list[int]) -> np.ndarray:
        text, importance = self.tau[classes], []
        for mask in self.masks:
            hidden = self.encode(np.where(mask, 0.0, self.episode.x.double().numpy()))
            importance.append(self.log_posterior(text @ self.z) - self.log_posterior(text @ hidden))
        return oracle.evidence_maps(np.array(importance), self.masks)

    def encode(self, pixels: np.ndarray) -> np.ndarray:
        return self.episode.backbone.encode_image(torch.from_numpy(pixels).float()[None])[0].double().numpy()

    def log_posterior(self, cosines: np.ndarray) -> np.ndarray:
        scores = self.beta * cosines
        return scores - np.log(np.exp(scores - scores.max()).sum()) - scores.max()

    @staticmethod
    def stretched(values: np.ndarray) -> np.ndarray:
        return (values - values.min()) / (values.max() - values.min())

    def common(self, first: int, second: int) -> np.ndarray:
        return self.stretched(oracle.common_evidence(self.maps[first], self.maps[second]))

    def z_common(self, first: int, second: int) -> np.ndarray:
        return self.encode(self.episode.x.double().numpy() * self.common(first, second))

    def z_unique(self, first: int, second: int) -> np.ndarray:
        own = self.stretched(oracle.softmax_over_pixels(self.maps[first]))
        return self.encode(self.episode.x.double().numpy() * own * (1 - self.common(first, second)))


@pytest.fixture(scope="module")
def slow(episode: Episode) -> Oracle:
    return Oracle(episode, SMALL["masks"], SMALL["k"], SMALL["beta"])


def test_ecec_of_a_photo_is_the_oracles(episode: Episode, slow: Oracle) -> None:
    position = slow.candidates.index(slow.predicted)
    above = below = 0.0
    for other in range(len(slow.candidates)):
        if other != position:
            gap = slow.tau[slow.candidates[position]] - slow.tau[slow.candidates[other]]
            above += max(0.0, slow.z_common(position, other) @ gap)
            below += max(EPSILON, slow.z @ gap)
    found = CommonEvidence(**SMALL)(episode)
    assert found.diagnostics["ecec"] == pytest.approx(above / below, abs=2e-3)
    assert found.candidates == tuple(slow.candidates)
    assert_same_answer(found, replace(create_method("zero_shot")(episode), candidates=found.candidates))


def test_decomposition_of_a_photo_is_the_oracles(episode: Episode, slow: Oracle) -> None:
    best = create_method("fcl", calibrate=False, k=SMALL["k"], beta=SMALL["beta"])(episode).candidates[:2]
    first, second = (slow.candidates.index(index) for index in best)
    parts = [slow.z_common(first, second), slow.z_unique(first, second), slow.z_unique(second, first)]
    composed = parts[0] + 0.1 * parts[1] + 0.1 * parts[2]
    expected = [*(float(part @ slow.z) for part in parts), float(composed @ slow.z / np.linalg.norm(composed))]
    found = Decomposition(**SMALL)(episode).diagnostics
    assert list(found) == ["cos_common", "cos_unique_1", "cos_unique_2", "cos_composed"]
    np.testing.assert_allclose(list(found.values()), expected, atol=2e-3)


def test_margin_terms_of_a_photo_are_the_oracles_and_add_up(episode: Episode, slow: Oracle) -> None:
    found = Margin(**SMALL)(episode).diagnostics
    scores = slow.beta * slow.tau @ slow.z
    order = np.argsort(-scores)
    assert found["margin"] == pytest.approx(scores[order[0]] - scores[order[1]], abs=1e-4)
    assert found["probability"] == pytest.approx(np.exp(scores[order[0]]) / np.exp(scores).sum(), abs=1e-5)
    assert found["bound"] <= found["probability"]
    position = slow.candidates.index(slow.predicted)
    rivals = [other for other in range(len(slow.candidates)) if other != position]
    rival = max(rivals, key=lambda other: scores[slow.candidates[other]])
    text, other = slow.tau[slow.candidates[position]], slow.tau[slow.candidates[rival]]
    terms = {
        "unique": slow.beta * slow.z_unique(position, rival) @ text,
        "common": slow.beta * slow.z_common(position, rival) @ (other - text),
        "competitor": slow.beta * slow.z_unique(rival, position) @ other,
    }
    for name, value in terms.items():
        assert found[name] == pytest.approx(value, abs=1e-2), name
    whole = slow.beta * float(slow.z @ (text - other))
    assert found["unique"] - found["common"] - found["competitor"] + found["residual"] == pytest.approx(whole, abs=1e-5)


def divergence_to_even(p: float) -> float:
    """Return JS of two distributions as printed: the mean of both divergences to their mixture."""
    total = 0.0
    for probability in (p, 1.0 - p):
        middle = (probability + 0.5) / 2
        total += 0.5 * (probability * math.log(probability / middle) + 0.5 * math.log(0.5 / middle))
    return total


def test_pair_decisions_in_closed_form() -> None:
    text, pairs = torch.eye(2), torch.tensor([[0, 0], [1, 1]])
    image = torch.tensor([[0.6, 0.6], [0.8, 0.0]])  # even; 4 nats at beta 5
    even, decided = pair_decisions(image, text, pairs, 5.0).tolist()
    assert even == pytest.approx(0.0, abs=1e-12)
    assert decided == pytest.approx(divergence_to_even(1 / (1 + math.exp(-4.0))), rel=1e-6)


def test_ambiguity_of_a_photo_is_the_oracles(episode: Episode, slow: Oracle) -> None:
    found = Ambiguity(**SMALL, evidence_scaling="minmax")(episode)
    best_first = [slow.candidates.index(index) for index in found.candidates]
    expected = {"js_image": [], "js_common": [], "js_unique": []}
    for rank, better in enumerate(best_first):
        for worse in best_first[rank + 1 :]:
            gap = slow.beta * (slow.tau[slow.candidates[better]] - slow.tau[slow.candidates[worse]])
            pictures = (slow.z, slow.z_common(better, worse), slow.z_unique(better, worse))
            for values, embedding in zip(expected.values(), pictures, strict=True):
                values.append(divergence_to_even(1 / (1 + math.exp(-embedding @ gap))))
    for name, values in expected.items():
        assert found.diagnostics[name] == pytest.approx(np.mean(values), abs=2e-4, rel=0.02), name
    for other in ("image", "unique"):
        difference = found.diagnostics["js_common"] - found.diagnostics[f"js_{other}"]
        assert found.diagnostics[f"common_minus_{other}"] == pytest.approx(difference)


@pytest.mark.parametrize("area", [None, 0.25])
def test_ambiguity_is_what_fcl_minimises_first(episode: Episode, area: float | None) -> None:
    loss = FCLVariants(**SMALL, area=area, pair_weight="uniform")(episode).diagnostics["loss_0"]
    assert Ambiguity(**SMALL, area=area)(episode).diagnostics["js_common"] == pytest.approx(loss, abs=1e-6)


def test_a_view_is_measured_as_an_image_of_its_own(episode: Episode) -> None:
    found = UniqueEvidence(**SMALL, views=2)(episode).diagnostics
    assert found["views"] == (0.0, 7.0)
    tau = episode.labels.text[0].double()
    for position, view in ((1, 7),):  # the plain view is the image itself
        log_posterior = (SMALL["beta"] * tau @ episode.view_features[view].double()).log_softmax(-1)
        assert found["entropy"][position] == pytest.approx(
            float(-(log_posterior.exp() * log_posterior).sum()), rel=1e-6
        )
        alone = Episode(episode.views[view].permute(1, 2, 0).numpy(), episode.labels, episode.recipe)
        slow = Oracle(alone, SMALL["masks"], SMALL["k"], SMALL["beta"])
        explored = create_method("fcl", calibrate=False, k=SMALL["k"], beta=SMALL["beta"])(episode).candidates
        shared = [index for index in explored if index != slow.predicted][:3]
        slow.maps = slow.maps_of([slow.predicted, *shared])
        expected = np.mean([slow.z_unique(0, other) @ slow.tau[slow.predicted] for other in (1, 2, 3)])
        assert found["euec"][position] == pytest.approx(expected, abs=2e-3)


def test_the_gallery_keeps_what_fcl_saw(
    photos: dict[str, np.ndarray], make_episode: MakeEpisode, lite_fp32: Backbone
) -> None:
    episode = make_episode(photos["rocket"], LabelSpace(CLASSES, lite_fp32))
    found = Gallery(**SMALL)(episode)
    adapted = FCL(**SMALL).adapt(episode)
    kept = read_maps(found.diagnostics)
    assert kept.image.shape == (*episode.plain.shape[1:], 3)
    assert np.abs(kept.image.astype(int) - episode.plain.permute(1, 2, 0).numpy()).mean() < 6  # JPEG
    assert kept.evidence.shape == (4, MAP_SIDE, MAP_SIDE)
    assert found.candidates == tuple(adapted.exploration.candidates.tolist())  # best first
    assert list(found.candidates) != sorted(found.candidates)
    positions = [adapted.candidates.tolist().index(candidate) for candidate in found.candidates]
    pooled = torch.nn.functional.adaptive_avg_pool2d(adapted.evidence.maps[positions], MAP_SIDE).numpy()
    np.testing.assert_allclose(kept.evidence, pooled, atol=2e-3)
    assert found.diagnostics["answer"] == adapted.prediction.index
    assert sum(found.diagnostics["posterior"]) == pytest.approx(1.0)
    np.testing.assert_allclose(found.diagnostics["after"], adapted.after.posterior[positions], atol=1e-6)


@pytest.mark.parametrize("analysis", [Ambiguity, CommonEvidence, Decomposition, Margin, UniqueEvidence, Gallery])
def test_one_class_has_nothing_to_compare(
    analysis: type, lite: Backbone, make_image: Callable[..., np.ndarray]
) -> None:
    episode = Episode(make_image(0), LabelSpace(("cat",), lite), ViewRecipe(count=4))
    found = analysis(masks=4)(episode)
    assert found.index == 0
    assert not {"ecec", "cos_common", "margin", "unique", "euec", "js_common"} & found.diagnostics.keys()
    assert not any(value == math.inf for value in found.diagnostics.values())


@pytest.mark.parametrize("name", list_analyses())
def test_several_templates_are_refused(name: str, lite: Backbone) -> None:
    method = create_method(name)
    method.check_labels(LabelSpace(CLASSES, lite))
    with pytest.raises(LabelError, match=f"{name} is measured with one prompt template, not 2; use --prompts single"):
        method.check_labels(LabelSpace(CLASSES, lite, ("a photo of a {}.", "art of a {}.")))


def test_the_predicted_class_takes_the_last_candidates_place(
    lite: Backbone, make_image: Callable[..., np.ndarray]
) -> None:
    labels = LabelSpace(("cat", "dog", "horse"), lite)
    episode = Episode(make_image(1), labels, ViewRecipe(count=8))
    tau = labels.text[0]
    episode.known["view_features"] = torch.stack([tau[0], *[tau[1]] * 6, tau[2]])  # z is a cat, the views are dogs
    setting = CommonEvidence(k=1, rho=0.9)
    assert setting.setting(episode).candidates.tolist() == [0]
    pair = CommonEvidence(k=2, rho=0.9).setting(episode)
    assert pair.candidates.tolist()[0] == 1
    assert 0 in pair.candidates.tolist()
    assert pair.candidates[pair.position] == pair.predicted == 0


def test_analyses_are_listed_apart_from_methods() -> None:
    assert set(list_analyses()) == ANALYSES
    assert not set(list_methods()) & set(list_analyses())


def test_an_analysis_takes_the_settings_recommended_for_fcl(lite: Backbone) -> None:
    found = create_method("evidence", preset="recommended", backbone=lite).settings()
    wanted = lite.recommended["fcl"]
    assert {name: found[name] for name in wanted if name in found} == {n: v for n, v in wanted.items() if n in found}
