"""Test-time adaptation methods, each a frozen dataclass of its hyper-parameters."""

# In the order of the paper's tables, in which methods are listed and run.
# ruff: noqa: I001
from faircontext.methods.base import Method, create_method, list_methods, register_method
from faircontext.methods.predict import ZeroShot, predict_by_logits, predict_by_scores
from faircontext.methods.tpt import CTPT, TPT
from faircontext.methods.rlcf import RLCF, RLCFEncoder
from faircontext.methods.mta import MTA
from faircontext.methods.zero import ZERO
from faircontext.methods.ttl import TTL
from faircontext.methods.tps import TPS
from faircontext.methods.rtpt import RTPT
from faircontext.methods.fcl import FCL, EvidenceMethod
from faircontext.methods.stream import StreamMethod, StreamState
from faircontext.methods.tda import TDA
from faircontext.methods.dmn import DMN
from faircontext.methods.onzeta import OnZeta
from faircontext.methods.boostadapter import BoostAdapter
from faircontext.methods.dpe import DPE
from faircontext.methods.ecalp import ECALP
from faircontext.methods.variants import ContextualCalibration, DMNVariants, FCLVariants, MarginVote, TDAVariants

__all__ = [
    "CTPT",
    "DMN",
    "DMNVariants",
    "DPE",
    "ECALP",
    "FCL",
    "MTA",
    "RLCF",
    "RTPT",
    "TDA",
    "TDAVariants",
    "TPS",
    "TPT",
    "TTL",
    "ZERO",
    "BoostAdapter",
    "ContextualCalibration",
    "EvidenceMethod",
    "FCLVariants",
    "MarginVote",
    "Method",
    "OnZeta",
    "RLCFEncoder",
    "StreamMethod",
    "StreamState",
    "ZeroShot",
    "create_method",
    "list_methods",
    "predict_by_logits",
    "predict_by_scores",
    "register_method",
]
