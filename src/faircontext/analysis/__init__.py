"""What the paper measures about evidence, and what answers cost; importing this files the analyses as methods."""

from faircontext.analysis.contribution import Ambiguity, CommonEvidence, Decomposition, Margin, UniqueEvidence
from faircontext.analysis.stability import Gallery, Pointing, Stability
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
