"""The zoo in one table: of each method its defaults, values that it refuses, and where its loss can be broken."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from faircontext import (
    CTPT,
    DMN,
    DPE,
    ECALP,
    FCL,
    MTA,
    RLCF,
    RTPT,
    TDA,
    TPS,
    TPT,
    TTL,
    ZERO,
    BoostAdapter,
    Method,
    OnZeta,
    RLCFEncoder,
    ZeroShot,
)

__all__ = ["SPEC", "Spec"]

NAN, INF = float("nan"), float("inf")


@dataclass(frozen=True)
class Spec:
    """What is known of a method beforehand.

    Attributes:
        kind: its class.
        defaults: every hyper-parameter.
        official: what the preset "official" changes; None where it needs a file.
        invalid: values that are refused, as (setting, value).
        seam: the function, by its full name, whose value is the loss or part of it; None where there is no loss.
        small: settings that make it fast.
        reference: answers as the method does where its loss is not finite.
        fallback: what such an answer says.
        untuned: whether it answers as `reference` where no step is taken.
    """

    kind: type[Method]
    defaults: Mapping[str, object]
    official: Mapping[str, object] | None = field(default_factory=dict)
    invalid: tuple[tuple[str, object], ...] = ()
    seam: str | None = None
    small: Mapping[str, object] = field(default_factory=dict)
    reference: Method = field(default_factory=ZeroShot)
    fallback: str = "answered by zero-shot"
    untuned: bool = True


STEP = {"lr": 0.005, "weight_decay": 0.01, "steps": 1}
BAD_STEP = (
    *(("lr", -0.1), ("lr", NAN)),
    *(("weight_decay", -0.1), ("weight_decay", NAN), ("weight_decay", INF)),
    ("steps", -1),
)
BAD_RHO = (("rho", 0.0), ("rho", -0.1), ("rho", 1.01), ("rho", NAN))
FEEDBACK = {"rho": 0.1, "lr": 0.007, "weight_decay": 0.0005, "steps": 3, "k": 3, "reward": None}
JUDGE = {"reward": "ViT-L-14:openai"}
TUNING = "faircontext.methods.tpt"
BAD_FCL = (
    *(("k", 0), ("k", -3)),
    *(("beta", 0.0), ("beta", -1.0), ("beta", INF), ("beta", NAN)),
    *(("masks", 0), ("grids", ()), ("grids", (7, 1))),
    *(("gamma", 0.0), ("gamma", 1.5)),
    *(("lambda_cal", -0.1), ("lambda_cal", NAN), ("lambda_align", -0.1), ("lambda_align", INF)),
    *(("lr", -0.1), ("lr", NAN), ("steps", -1)),
)
FCL_DEFAULTS = {
    "context": "cl",
    "k": 10,
    "rho": 0.3,
    "beta": None,
    "aggregation": "vote",
    "calibrate": True,
    "masks": 400,
    "grids": (7, 9, 11, 13),
    "gamma": 0.5,
    "occluder": "black",
    "estimator": "paper",
    "smoothing": 0.0,
    "budget": None,
    "reliability": 0.8,
    "evidence_scaling": "max",
    "area": None,
    "proxy": "evidence",
    "pair_weight": "paper",
    "lambda_cal": 1.0,
    "lambda_align": 1.0,
    "lr": 0.002,
    "steps": 2,
    "safe": False,
    "safe_openness": 0.8,
    "pairs": "all",
    "hp_base": "hard",
    "hp_init": "copy",
}
SMALL = {"masks": 8, "k": 3, "beta": 5.0, "lr": 0.006}

TDA_DEFAULTS = {
    "alpha": 2.0,
    "beta": 5.0,
    "capacity": 3,
    "negative_alpha": 0.117,
    "negative_beta": 1.0,
    "negative_capacity": 2,
    "uncertain": (0.2, 0.5),
    "mask": (0.03, 1.0),
    "views": "plain",
    "rho": 0.1,
    "label": "zero-shot",
}
BAD_TDA = (
    *BAD_RHO,
    *((name, value) for name in ("alpha", "beta") for value in (-0.1, NAN, INF)),
    *((name, value) for name in ("negative_alpha", "negative_beta") for value in (-0.1, NAN)),
    *(("capacity", 0), ("negative_capacity", -1), ("capacity", 1001)),
    *(("uncertain", (0.5, 0.2)), ("uncertain", (0.2,)), ("mask", (0.5, 1.5)), ("mask", (NAN, 1.0))),
)

SPEC = {
    "zero_shot": Spec(ZeroShot, {}),
    "tpt": Spec(TPT, {"rho": 0.1, **STEP}, invalid=BAD_RHO + BAD_STEP, seam=f"{TUNING}.marginal_entropy"),
    "ctpt": Spec(
        CTPT,
        {"rho": 0.1, **STEP, "dispersion": 50.0},
        invalid=(*BAD_RHO, *BAD_STEP, ("dispersion", -1.0), ("dispersion", NAN), ("dispersion", INF)),
        seam=f"{TUNING}.text_dispersion",
    ),
    "rlcf": Spec(
        RLCF,
        FEEDBACK,
        official=JUDGE,
        invalid=(*BAD_RHO, *BAD_STEP, ("k", 0)),
        seam="faircontext.methods.rlcf.feedback_loss",
    ),
    "rlcf_encoder": Spec(
        RLCFEncoder,
        {**FEEDBACK, "lr": 1e-5},
        official=JUDGE,
        invalid=(*BAD_RHO, *BAD_STEP, ("k", 0)),
        seam="faircontext.methods.rlcf.feedback_loss",
    ),
    "mta": Spec(
        MTA,
        {"neighbours": 0.3, "lambda_y": 0.2, "lambda_q": 4.0, "iterations": 5},
        invalid=(
            *(("neighbours", 0.0), ("neighbours", 1.5), ("iterations", 0)),
            *(("lambda_y", 0.0), ("lambda_y", 1e-40), ("lambda_y", NAN), ("lambda_q", -1.0), ("lambda_q", INF)),
        ),
    ),
    "zero": Spec(ZERO, {"rho": 0.3, "temperature": "hard"}, official={"temperature": "eps_fp16"}, invalid=BAD_RHO),
    "ttl": Spec(
        TTL,
        {"blocks": 3, "rank": 16, "alpha": 32.0, "threshold": 0.4, **STEP},
        invalid=(*BAD_STEP, ("blocks", 0), ("rank", 0), ("alpha", 0.0), ("alpha", NAN)),
        seam="faircontext.methods.ttl.weighted_entropy",
    ),
    "tps": Spec(
        TPS,
        {"prototypes": "prompts", "descriptors": None, "rho": 0.1, **STEP},
        official=None,
        invalid=BAD_RHO + BAD_STEP,
        seam="faircontext.methods.tps.marginal_entropy",
        fallback="answered by the prototypes as they are",
    ),
    "rtpt": Spec(
        RTPT,
        {"rho": 0.1, **STEP, "neighbours": 20, "temperature": 0.01},
        invalid=(
            *BAD_RHO,
            *BAD_STEP,
            *(("neighbours", 0), ("neighbours", -1)),
            *(("temperature", 0.0), ("temperature", 1e-40), ("temperature", NAN)),
        ),
        seam="faircontext.methods.rtpt.mean_entropy",
        untuned=False,  # it averages all views, also where nothing is learnt
    ),
    "fcl": Spec(
        FCL,
        FCL_DEFAULTS,
        invalid=BAD_RHO + BAD_FCL,
        seam="faircontext.methods.fcl.total_loss",
        small=SMALL,
        reference=FCL(**SMALL, calibrate=False),
        fallback="answered by exploration alone",
    ),
    "tda": Spec(TDA, TDA_DEFAULTS, invalid=BAD_TDA),
    "dmn": Spec(
        DMN,
        {"beta": 5.5, "slots": 50, "rho": 0.1, "mix": 1.0, "label": "zero-shot"},
        invalid=(
            *BAD_RHO,
            *((name, value) for name in ("beta", "mix") for value in (-0.1, NAN, INF)),
            ("slots", 0),
            ("slots", 1001),
        ),
    ),
    "onzeta": Spec(
        OnZeta,
        {"beta": 0.8, "alpha": 1.0, "c_w": 0.5, "c_rho": 20.0, "tau_text": None, "tau_image": None},
        invalid=(
            *(("beta", value) for value in (-0.1, 1.1, NAN)),
            *((name, value) for name in ("alpha", "c_w", "c_rho") for value in (-0.1, NAN, INF)),
            *((name, value) for name in ("tau_text", "tau_image") for value in (0.0, -1.0, NAN)),
        ),
    ),
    "boostadapter": Spec(BoostAdapter, {**TDA_DEFAULTS, "delta": 3}, invalid=(*BAD_TDA, ("delta", -1))),
    "dpe": Spec(
        DPE,
        {
            "a": 6.0,
            "b": 5.0,
            "lr": 0.0005,
            "lam": 0.5,
            "capacity": 3,
            "threshold": 0.1,
            "rho": 0.1,
            "views": "confident",
            "answer": "plain",
            "formulas": "paper",
        },
        official={"formulas": "repository"},
        invalid=(
            *BAD_RHO,
            *((name, value) for name in ("a", "b", "lr", "lam", "threshold") for value in (-0.1, NAN, INF)),
            ("capacity", 0),
            ("capacity", 1001),
        ),
    ),
    "ecalp": Spec(
        ECALP,
        {"k_text": 3, "k_image": 8, "gamma": 10, "iterations": 3},
        invalid=tuple((name, value) for name in ("k_text", "k_image", "gamma", "iterations") for value in (0, 1001)),
    ),
}
"""By name, in the order of the paper's tables; those with a memory come last."""
