"""What the paper measures about evidence, and what answers cost; importing this files the analyses as methods."""

from faircontext.analysis.ambiguity import Ambiguity
from faircontext.analysis.decomposition import Decomposition, Margin
from faircontext.analysis.evidence_contribution import CommonEvidence, UniqueEvidence
from faircontext.analysis.gallery import Gallery
from faircontext.analysis.pointing import Pointing
from faircontext.analysis.stability import Stability
from faircontext.methods.base import METHODS

__all__ = [
    "Ambiguity",
    "CommonEvidence",
    "Decomposition",
    "Gallery",
    "Margin",
    "Pointing",
    "Stability",
    "UniqueEvidence",
    "list_analyses",
]


def list_analyses(pattern: str = "*") -> list[str]:
    """Return the names of the analyses that match a shell pattern."""
    return [name for name in METHODS.names(pattern) if METHODS[name].analysis]
