"""Fair Context Learning against a slow independent reimplementation, at its limits, and where it must fall back."""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from types import FrameType, SimpleNamespace

import numpy as np
import pytest
import torch

from faircontext import FCL, Backbone, Episode, LabelSpace, Prediction, ViewRecipe, ZeroShot, create_method
from faircontext.backbones.lite import Lite
from faircontext.backbones.prompts import CONTEXT, PROMPT_SETS
from faircontext.calibrate import alignment_loss, calibration_loss, pair_weights, total_loss
from faircontext.errors import LabelError
from faircontext.explore import explore, normalised_entropy
from faircontext.methods import FCLVariants
from helpers import assert_identical, assert_same_answer, assert_valid, same_bits
from oracles import fcl as oracle

Photos = dict[str, np.ndarray]
MakeEpisode = Callable[..., Episode]
SMALL = {"masks": 8, "k": 4, "beta": 5.0, "lr": 0.006}


@pytest.fixture(scope="module")
def episode(photos: Photos, make_episode: MakeEpisode) -> Episode:
    """A photo of something that is not among the things lite knows: its candidates are close."""
    return make_episode(photos["astronaut"])


@pytest.fixture(scope="module")
def small(episode: Episode) -> Prediction:
    return FCL(**SMALL)(episode)


class CountingLite(Lite):
    """Counts the images that it encodes."""

    encoded = 0

    def encode_parts(self, parts):
        parts = [*parts]
        self.encoded += sum(map(len, parts))
        return super().encode_parts(parts)


def assert_close_to_oracle(prediction: Prediction, expected: oracle.Answer, tolerance: float) -> None:
    assert prediction.index == expected.index
    assert prediction.ranking.tolist() == expected.ranking
    assert list(prediction.candidates) == expected.candidates
    assert prediction.votes.tolist() == expected.votes
    np.testing.assert_allclose(prediction.probabilities, expected.probabilities, rtol=0, atol=tolerance)


@pytest.mark.parametrize("aggregation", ["vote", "mean"])
@pytest.mark.parametrize(("photo", "k", "rho"), [("astronaut", 10, 0.3), ("astronaut", 3, 0.5), ("motorcycle", 5, 1.0)])
def test_exploration_only_is_phi_k_then_phi_1(
    photos: Photos, make_episode: MakeEpisode, photo: str, k: int, rho: float, aggregation: str
) -> None:
    episode = make_episode(photos[photo], views=16)
    method = FCL(k=k, rho=rho, aggregation=aggregation, calibrate=False)
    expected = oracle.exploration_only(episode, 0.2 * episode.backbone.logit_scale, k, rho, aggregation)
    assert_close_to_oracle(method(episode), expected, 1e-6)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"evidence_scaling": "minmax", "pair_weight": "inverse", "occluder": "mean"},
        {"evidence_scaling": "none", "pair_weight": "uniform", "aggregation": "mean", "lambda_align": 0.3},
        {"context": "cl-hp"},
        {"context": "cl-hp", "hp_base": "init", "hp_init": "normal", "gamma": (0.2, 0.8)},
        {"anchor": "unique", "lambda_align": 0.5, "steps": 3},
    ],
    ids=["paper", "minmax", "none", "cl-hp", "cl-hp init", "unique"],
)
def test_answers_agree_with_the_slow_reimplementation(
    photos: Photos, make_episode: MakeEpisode, lite_fp32: Backbone, lite_double: Backbone, settings: dict
) -> None:
    labels = LabelSpace(("person", "cat", "motorcycle", "flag", "rocket"), lite_fp32)
    episode = make_episode(photos["astronaut"], labels)
    method = FCLVariants(**{**SMALL, "lr": 0.02, **settings})
    prediction = method(episode)
    assert_close_to_oracle(prediction, oracle.fcl(episode, method, lite_double), 1e-4)
    unadapted = FCLVariants(**{**SMALL, **settings, "calibrate": False})(episode)
    assert (prediction.probabilities - unadapted.probabilities).abs().max() > 1e-3  # ten times the tolerance


@pytest.mark.parametrize("settings", [{"lambda_cal": 0.0}, {"lr": 0.0}, {"steps": 0}], ids=str)
def test_without_calibration_the_answer_is_explorations_to_the_bit(episode: Episode, settings: dict) -> None:
    adaptation = FCL(**{**SMALL, **settings}).adapt(episode)
    delta0 = episode.backbone.context(episode.labels.prompts[0])
    assert delta0.dtype == torch.float32
    assert same_bits(adaptation.calibration.context, delta0)
    assert adaptation.prediction.fallback is None
    assert_same_answer(adaptation.prediction, FCL(**SMALL, calibrate=False)(episode))


@pytest.mark.parametrize(("context", "placement"), [("cl", "replace"), ("cl-hp", "prepend")])
def test_the_losss_gradient_through_the_text_tower_is_its_slope(
    episode: Episode, lite_double: Backbone, context: str, placement: str
) -> None:
    adaptation = FCL(**SMALL, context=context).adapt(episode)
    names = [episode.labels.names[index] for index in adaptation.candidates]
    prompts, pairs = lite_double.tokenize(names, episode.labels.templates[0]), adaptation.pairs
    common = episode.backbone.encode_image(episode.x * adaptation.common[:, None]).double()
    image, delta0 = episode.z.double(), lite_double.context(prompts)
    encode = partial(lite_double.encode_text, prompts, placement=placement)
    reference = encode(delta0)
    delta = (delta0 + 0.01 * torch.randn(delta0.shape, generator=torch.Generator().manual_seed(0))).requires_grad_()
    loss = total_loss(encode(delta), reference, image, common, pairs, beta=5.0, lambda_cal=0.7, lambda_align=1.3)
    (gradient,) = torch.autograd.grad(loss, delta)
    weights = pair_weights((5.0 * encode(delta) @ image).softmax(-1), pairs)  # no gradient passes through them

    def value(context: torch.Tensor) -> float:
        text = encode(context)
        return float(0.7 * calibration_loss(text, common, pairs, weights, 5.0) + 1.3 * alignment_loss(text, reference))

    assert gradient.dtype == torch.float64
    largest = gradient.flatten().abs().argsort(descending=True)
    for position in [*largest[:3].tolist(), 0, 500, 1500]:
        offset = torch.zeros_like(delta0)
        offset.view(-1)[position] = 1e-4
        with torch.no_grad():
            slope = (value(delta + offset) - value(delta - offset)) / 2e-4
        assert slope == pytest.approx(float(gradient.flatten()[position]), rel=1e-4, abs=1e-9)


@pytest.mark.parametrize(("names", "k"), [(("cat",), 10), (("cat", "dog", "rocket"), 1)])
def test_fewer_than_two_candidates_are_not_calibrated(
    photos: Photos, make_episode: MakeEpisode, lite: Backbone, names: tuple[str, ...], k: int
) -> None:
    episode = make_episode(photos["cat"], LabelSpace(names, lite))
    prediction = FCL(masks=8, k=k)(episode)
    assert prediction.fallback == "fewer than two candidates: nothing to calibrate"
    assert names[prediction.index] == "cat"
    assert_valid(prediction, len(names))
    assert_same_answer(prediction, FCL(k=k, calibrate=False)(episode))


@pytest.mark.parametrize("steps", [1, 2])
def test_a_context_that_overflows_falls_back_to_exploration(episode: Episode, steps: int) -> None:
    prediction = FCL(**{**SMALL, "lr": 1e37, "steps": steps})(episode)
    assert "not finite: answered by exploration alone" in prediction.fallback
    assert_same_answer(prediction, FCL(**SMALL, calibrate=False)(episode))


EFFECTIVE = [
    *({"context": "cl-hp"}, {"k": 2}, {"rho": 1.0}, {"beta": 20.0}, {"calibrate": False}),
    *(
        {"masks": 16},
        {"grids": (7,)},
        {"gamma": 0.3},
        {"gamma": (0.2, 0.8)},
        {"occluder": "mean"},
        {"occluder": "blur"},
    ),
    *({"evidence_scaling": "minmax"}, {"evidence_scaling": "none"}, {"pair_weight": "inverse"}),
    *({"pair_weight": "uniform"}, {"lambda_cal": 3.0}, {"lambda_align": 0.0}, {"lr": 0.002}, {"steps": 1}),
]


@pytest.mark.parametrize("option", EFFECTIVE, ids=str)
def test_an_option_has_an_effect(episode: Episode, small: Prediction, option: dict) -> None:
    prediction = FCLVariants(**{**SMALL, **option})(episode)
    assert_valid(prediction, len(episode.labels))
    assert prediction.fallback is None
    assert not torch.equal(prediction.probabilities, small.probabilities)


@pytest.mark.parametrize("option", [{"hp_base": "init"}, {"hp_init": "normal"}], ids=str)
def test_options_of_cl_hp_have_an_effect_on_it_alone(episode: Episode, small: Prediction, option: dict) -> None:
    assert_same_answer(FCLVariants(**SMALL, **option)(episode), small)
    prepended = FCLVariants(**SMALL, context="cl-hp", **option)(episode)
    assert_valid(prepended, len(episode.labels))
    assert not torch.equal(prepended.probabilities, FCL(**SMALL, context="cl-hp")(episode).probabilities)


def test_beta_is_a_fifth_of_the_backbones_own_scale_by_default(episode: Episode) -> None:
    assert_identical(FCL(masks=8, k=4)(episode), FCL(masks=8, k=4, beta=0.2 * episode.backbone.logit_scale)(episode))


def test_the_mean_can_outweigh_the_votes(photos: Photos, make_episode: MakeEpisode) -> None:
    episode = make_episode(photos["cat"])
    first, second = episode.labels.text[0][1], episode.labels.text[0][5]
    views = torch.stack([first + 0.95 * second] * 3 + [second] * 2)
    episode.known["view_features"] = torch.nn.functional.normalize(views, dim=-1)  # three weak votes, two sure ones
    by_vote, by_mean = (FCL(rho=1.0, beta=20.0, aggregation=a, calibrate=False)(episode) for a in ("vote", "mean"))
    assert by_vote.votes.tolist() == by_mean.votes.tolist() == [0, 3, 0, 0, 0, 2, 0, 0, 0, 0]
    assert (by_vote.index, by_mean.index) == (1, 5)


def test_learnable_tokens_start_as_a_copy_or_as_the_images_own_noise(
    episode: Episode, photos: Photos, make_episode: MakeEpisode
) -> None:
    def start(episode: Episode, hp_init: str) -> torch.Tensor:
        return FCLVariants(**{**SMALL, "steps": 0}, context="cl-hp", hp_init=hp_init).adapt(episode).calibration.context

    assert same_bits(start(episode, "copy"), episode.backbone.context_of(CONTEXT))
    noise = start(episode, "normal")
    assert noise.shape == (4, 384)
    assert abs(float(noise.mean())) < 0.002
    assert float(noise.std()) == pytest.approx(0.02, rel=0.1)
    assert same_bits(noise, start(make_episode(photos["astronaut"]), "normal"))
    assert not torch.equal(noise, start(make_episode(photos["astronaut"], seed=1), "normal"))


def test_cl_hp_explores_with_the_plain_hard_prompt(episode: Episode) -> None:
    hard, context = (FCL(**SMALL, context=context).adapt(episode) for context in ("cl-hp", "cl"))
    assert same_bits(hard.exploration.posterior, context.exploration.posterior)
    assert same_bits(hard.evidence.maps, context.evidence.maps)
    init = FCLVariants(**SMALL, context="cl-hp", hp_base="init").adapt(episode)
    assert not torch.equal(init.exploration.posterior, context.exploration.posterior)


def test_an_adaptation_holds_each_stage(episode: Episode, small: Prediction) -> None:
    text = episode.labels.text.clone()
    adaptation = FCL(**SMALL).adapt(episode)
    assert torch.equal(text, episode.labels.text)
    assert_identical(adaptation.prediction, small)
    assert adaptation.candidates.tolist() == sorted(adaptation.prediction.candidates)
    assert adaptation.evidence.maps.shape == (4, 64, 64)
    assert adaptation.pairs.tolist() == [[0, 0, 0, 1, 1, 2], [1, 2, 3, 2, 3, 3]]
    assert adaptation.common.shape == (6, 64, 64)
    assert adaptation.common.amax((1, 2)).tolist() == [1.0] * 6
    assert int(adaptation.after.votes.sum()) == len(adaptation.after.selected)
    best = adaptation.pairs.T.tolist().index(adaptation.after.ranking[:2].sort().values.tolist())
    assert same_bits(adaptation.best_common, adaptation.common[best])
    rest = torch.arange(6) != best
    assert replace(adaptation, pairs=adaptation.pairs[:, rest], common=adaptation.common[rest]).best_common is None
    unadapted = FCL(**SMALL, calibrate=False).adapt(episode)
    assert same_bits(adaptation.before.posterior, unadapted.after.posterior)
    assert unadapted.best_common is None


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{} texture.", r"'\{\} texture.' has no words before the class name for context='cl' to learn"),
        ("photo of{}", r"'photo of\{\}' runs into the class name, as in 'photo ofcat' \(put a blank between\), .*"),
    ],
)
def test_cl_needs_words_before_the_name_and_cl_hp_does_not(
    photos: Photos, make_episode: MakeEpisode, lite: Backbone, template: str, reason: str
) -> None:
    labels = LabelSpace(("cat", "dog"), lite, (template,))
    episode = make_episode(photos["cat"], labels)
    with pytest.raises(LabelError, match=rf"^prompt template {reason}; use context='cl-hp'$"):
        FCL(masks=8)(episode)
    assert FCL(masks=8, context="cl-hp")(episode).index == 0
    assert ZeroShot()(episode).index == 0


def test_a_context_of_one_token_is_learnt(photos: Photos, make_episode: MakeEpisode, lite: Backbone) -> None:
    episode = make_episode(photos["cat"], LabelSpace(("cat", "dog"), lite, ("a {} in a video game.",)))
    adaptation = FCL(masks=8, lr=0.006).adapt(episode)
    assert adaptation.calibration.context.shape == (1, 384)
    assert adaptation.prediction.diagnostics["context_shift"] > 0


@pytest.fixture(scope="module")
def ensemble(photos: Photos, make_episode: MakeEpisode) -> tuple[Episode, list[Prediction], Prediction, int]:
    """An episode of seven templates, the answer for each, the ensemble's, and how many images that took."""
    backbone = CountingLite("lite0")
    names = ("flag", "person", "uniform", "space suit", "helmet", "astronaut")  # none is right: templates disagree
    labels = LabelSpace(names, backbone, PROMPT_SETS["generic7"])
    episode, method = make_episode(photos["motorcycle"], labels), FCL(masks=8, k=3)
    prediction = method(episode)
    encoded = backbone.encoded
    return episode, [method.adapt(episode, template).prediction for template in range(7)], prediction, encoded


def test_the_ensemble_encodes_views_and_masked_images_once(ensemble) -> None:
    assert ensemble[3] == 8 + 8 + 7 * 3


def test_the_ensemble_answers_by_majority_of_its_templates(ensemble) -> None:
    _, runs, prediction, _ = ensemble
    counts = [sum(run.index == index for run in runs) for index in range(6)]
    shares = [sum(float(run.votes[index]) / 2 for run in runs) for index in range(6)]  # two views are kept of eight
    assert sum(count > 0 for count in counts) > 1
    assert prediction.votes.tolist() == counts
    assert prediction.index == max(range(6), key=lambda index: (counts[index], shares[index], -index))
    mean = torch.stack([run.probabilities for run in runs]).mean(0)
    torch.testing.assert_close(prediction.probabilities, mean, rtol=0, atol=1e-6)
    assert set(prediction.candidates) == {candidate for run in runs for candidate in run.candidates}
    assert prediction.fallback is None
    assert_valid(prediction, 6)


def test_a_template_of_the_ensemble_answers_as_it_does_alone(
    ensemble, photos: Photos, make_episode: MakeEpisode
) -> None:
    episode, runs, _, _ = ensemble
    alone = LabelSpace(episode.labels.names, episode.backbone, PROMPT_SETS["generic7"][3:4])
    assert_identical(FCL(masks=8, k=3)(make_episode(photos["motorcycle"], alone)), runs[3])


@pytest.mark.parametrize(
    ("votes", "index"),
    [
        ([(4, 0, 0), (0, 4, 0), (0, 4, 0)], 1),  # majority
        ([(3, 1, 0), (0, 4, 0)], 1),  # a tie: the higher share of all votes
        ([(2, 1, 1), (1, 3, 0)], 1),
        ([(0, 1, 3), (3, 1, 0), (0, 3, 1)], 1),  # three answers once each, and shares 3, 5, 4 of 12
        ([(4, 0, 0), (0, 4, 0)], 0),  # a tie in everything: the lower index
    ],
)
def test_ties_between_templates_go_to_the_higher_vote_share(
    photos: Photos, make_episode: MakeEpisode, lite: Backbone, monkeypatch: pytest.MonkeyPatch, votes: list, index: int
) -> None:
    runs = []
    for row in map(torch.tensor, votes):
        ranking = row.argsort(descending=True, stable=True)
        runs.append(Prediction(int(ranking[0]), ranking, torch.full((3,), 1 / 3), row, (0, 1, 2)))
    monkeypatch.setattr(FCL, "adapt", lambda _self, _episode, template: SimpleNamespace(prediction=runs[template]))
    templates = tuple(f"{number} {{}}." for number in range(len(runs)))
    episode = make_episode(photos["cat"], LabelSpace(("cat", "dog", "rocket"), lite, templates))
    assert FCL()(episode).index == index


def test_the_ensemble_says_which_part_fell_back(photos: Photos, make_episode: MakeEpisode, lite: Backbone) -> None:
    labels = LabelSpace(("cat",), lite, PROMPT_SETS["generic7"])
    prediction = create_method("fcl", masks=8)(make_episode(photos["cat"], labels))
    assert prediction.fallback == "fewer than two candidates: nothing to calibrate"
    assert prediction.votes.tolist() == [7]


@pytest.mark.parametrize("proxy", ["image", "mean", "grey", "black"])
def test_a_control_makes_all_pairs_alike_on_one_picture(
    proxy: str, photos: Photos, make_episode: MakeEpisode, monkeypatch: pytest.MonkeyPatch
) -> None:
    episode = make_episode(photos["astronaut"])
    monkeypatch.setattr(Episode, "masked_features", lambda *_: pytest.fail("a control needs no evidence"))
    found = FCLVariants(**SMALL, proxy=proxy).adapt(episode)
    assert found.evidence is None
    assert found.common is None
    picture = {
        "image": episode.x,
        "mean": episode.x.mean((1, 2), keepdim=True).expand_as(episode.x),
        "grey": torch.full_like(episode.x, 0.5),
        "black": torch.zeros_like(episode.x),
    }[proxy]
    pairs = torch.triu_indices(4, 4, 1)
    z = episode.backbone.encode_image(picture[None]).expand(pairs.shape[1], -1)
    text = episode.labels.text[0][found.candidates]
    expected = total_loss(text, text, episode.z, z, pairs, beta=SMALL["beta"])
    assert found.calibration.losses[0] == pytest.approx(float(expected), abs=1e-5)


def test_what_calibration_moved_is_on_record(episode: Episode, small: Prediction) -> None:
    varied = FCLVariants(**SMALL)(episode)
    found = varied.diagnostics
    assert_same_answer(varied, small)
    assert small.diagnostics.items() <= found.items()
    assert found["votes_old_before"] >= found["votes_new_before"]  # the old winner won before, the new one after
    assert found["vote_share"] >= found["votes_old_after"]
    if found["explored"] == small.index:
        assert found["posterior_old_before"] == found["posterior_new_before"]


def test_the_normalised_entropy_is_the_mean_entropy_over_its_maximum() -> None:
    views = torch.eye(4)[[0, 0, 1]]
    certain = explore(views, torch.eye(4), beta=1e6, k=1, rho=1.0)
    blank = explore(views, torch.eye(4), beta=0.0, k=1, rho=1.0)
    assert normalised_entropy(certain) == pytest.approx(0.0, abs=1e-6)
    assert normalised_entropy(blank) == pytest.approx(1.0, abs=1e-6)
    mixed = explore(views, torch.eye(4), beta=2.0, k=1, rho=1.0)
    top = np.exp(2.0) / (np.exp(2.0) + 3)
    entropy = -top * np.log(top) - (1 - top) * np.log((1 - top) / 3)
    assert normalised_entropy(mixed) == pytest.approx(entropy / np.log(4), rel=1e-5)


@pytest.mark.parametrize("beta", [0.5, 200.0])
def test_safe_calibrates_open_images_only(
    beta: float, photos: Photos, make_episode: MakeEpisode, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {**SMALL, "beta": beta}
    open_ = normalised_entropy(FCL(**settings).adapt(make_episode(photos["astronaut"])).before) >= FCL().safe_openness
    assert open_ == (beta == 0.5)
    episode = make_episode(photos["astronaut"])
    if open_:
        assert_identical(FCL(**settings, safe=True)(episode), FCL(**settings)(episode))
        return
    monkeypatch.setattr(Episode, "masked_features", lambda *_: pytest.fail("nothing is localised"))
    safe = FCL(**settings, safe=True)(episode)
    assert_same_answer(safe, FCL(**settings, calibrate=False)(episode))
    assert safe.fallback is None
    assert safe.diagnostics["entropy_selected"] / np.log(4) < FCL().safe_openness


def test_pairs_of_the_three_top_candidates_are_made_alike(photos: Photos, make_episode: MakeEpisode) -> None:
    settings = {**SMALL, "k": 10}
    every, leading = (
        FCLVariants(**settings, pairs=pairs).adapt(make_episode(photos["astronaut"])) for pairs in ("all", "top3")
    )
    top = set(leading.before.ranking[:3].tolist())
    used = [pair for pair in every.pairs.T.tolist() if top & set(pair)]
    assert leading.pairs.T.tolist() == used
    assert (every.common.shape[0], leading.common.shape[0]) == (45, 24)
    rows = [every.pairs.T.tolist().index(pair) for pair in used]
    assert same_bits(leading.common, every.common[rows])
    assert not torch.equal(leading.calibration.context, every.calibration.context)


def test_candidates_of_one_name_share_their_pictures(photos: Photos) -> None:
    backbone = CountingLite("lite0")
    labels = LabelSpace(("cat", "dog", "cat", "horse"), backbone)
    episode = Episode(photos["cat"], labels, ViewRecipe(count=8, scale=(0.3, 1.0)))
    adaptation = FCL(**SMALL).adapt(episode)
    assert backbone.encoded == 8 + 8 + 4  # of six pairs, those of the two cats with a third are two
    alone = torch.cat([backbone.encode_image(episode.x * common[None, None]) for common in adaptation.common])
    assert same_bits(episode.weighted_features(adaptation.common), alone)


# Descriptions of the classes: one context for all of them

FEATURES = {
    "astronaut": ["A person in a suit.", "A spaceman in white, with a flag."],
    "rocket": ["A rocket."],
    "cat": ["A cat purrs."],
}


@pytest.mark.parametrize("hp_base", ["hard", "init"])
def test_one_context_is_learnt_over_all_descriptions(
    photos: Photos, make_episode: MakeEpisode, lite: Backbone, hp_base: str
) -> None:
    labels = LabelSpace(tuple(FEATURES), lite, descriptions=FEATURES)
    episode = make_episode(photos["astronaut"], labels)
    adaptation = FCLVariants(**SMALL, context="cl-hp", hp_base=hp_base).adapt(episode)
    assert adaptation.calibration is not None
    context = adaptation.calibration.context
    assert context.shape == labels.initial_tokens.shape
    assert not context.equal(labels.initial_tokens)
    for row, index in enumerate(adaptation.candidates.tolist()):
        rows = lite.encode_text(lite.tokenize(labels.descriptions[index], "{}"), context, "prepend").double()
        expected = torch.nn.functional.normalize(rows.mean(0), dim=-1)
        torch.testing.assert_close(adaptation.calibration.text[row].double(), expected, rtol=0, atol=1e-6)


def test_descriptions_have_no_words_that_cl_could_learn(lite: Backbone) -> None:
    labels = LabelSpace(tuple(FEATURES), lite, descriptions=FEATURES)
    for method, fix in (
        ("fcl", "context='cl' to learn; use context='cl-hp'"),
        ("tpt", "tpt to learn; use other prompts"),
    ):
        with pytest.raises(LabelError, match=f"^descriptions of the classes have no words .* in common for {fix}"):
            create_method(method).check_labels(labels)


def test_an_image_passes_few_modules_on_its_way(tiny: Callable[[str], Backbone], make_image: MakeEpisode) -> None:
    """Counted over calls: modules whose functions are handed the episode, and how often it comes back to FCL.

    To read what the episode knows is no call.
    """
    labels = LabelSpace(("cat", "dog", "horse"), tiny("clip"))
    FCL(masks=8)(Episode(make_image(1), labels, ViewRecipe(count=4)))  # what belongs to the labels is there
    episode, trail = Episode(make_image(0), labels, ViewRecipe(count=4)), list[str]()

    def hands_on(frame: FrameType) -> bool:
        code, at = frame.f_code, frame.f_back
        while at is not None and not at.f_globals.get("__name__", "").startswith("faircontext."):
            at = at.f_back  # of the checker of types
        if any(one and isinstance(getattr(Episode, one.f_code.co_name, None), property) for one in (frame, at)):
            return False
        handed = (frame.f_locals.get(name) is episode for name in code.co_varnames[: code.co_argcount])
        return frame.f_globals.get("__name__", "").startswith("faircontext.") and any(handed)

    def watch(frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "return") and hands_on(frame):
            at: FrameType | None = frame if event == "call" else frame.f_back
            while at is not None and not hands_on(at):
                at = at.f_back
            if at is not None and trail[-1:] != [at.f_globals["__name__"]]:
                trail.append(at.f_globals["__name__"])

    earlier = sys.getprofile()
    sys.setprofile(watch)
    try:
        adaptation = FCL(masks=8).adapt(episode)
    finally:
        sys.setprofile(earlier)
    assert adaptation.calibration is not None
    assert trail[0] == "faircontext.methods.fcl"
    assert len(set(trail)) <= 5, trail
    assert trail[1:].count("faircontext.methods.fcl") <= 4, trail
