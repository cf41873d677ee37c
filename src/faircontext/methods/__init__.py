"""Test-time adaptation methods, each a frozen dataclass of its hyper-parameters."""

# In the order of the paper's tables, in which methods are listed and run.
# ruff: noqa: I001
from faircontext.methods.base import Method, create_method, list_methods, parse_settings, register_method
from faircontext.methods.evidence import EvidenceMethod
from faircontext.methods.predict import ZeroShot
from faircontext.methods.tpt import CTPT, TPT
from faircontext.methods.rlcf import RLCF, RLCFEncoder
from faircontext.methods.mta import MTA
from faircontext.methods.zero import ZERO
from faircontext.methods.ttl import TTL
from faircontext.methods.tps import TPS
from faircontext.methods.rtpt import RTPT
from faircontext.methods.fcl import FCL

__all__ = [
    "CTPT",
    "FCL",
    "MTA",
    "RLCF",
    "RTPT",
    "TPS",
    "TPT",
    "TTL",
    "ZERO",
    "EvidenceMethod",
    "Method",
    "RLCFEncoder",
    "ZeroShot",
    "create_method",
    "list_methods",
    "parse_settings",
    "register_method",
]
