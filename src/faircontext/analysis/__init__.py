"""What the paper measures about evidence, and what answers cost; importing this files the analyses as methods."""

from faircontext.analysis.decomposition import Decomposition, Margin
from faircontext.analysis.evidence_contribution import CommonEvidence, UniqueEvidence
from faircontext.analysis.gallery import Gallery
from faircontext.analysis.stability import Stability
from faircontext.methods.base import METHODS

__all__ = [
    "CommonEvidence",
    "Decomposition",
    "Gallery",
    "Margin",
    "Stability",
    "UniqueEvidence",
    "is_analysis",
    "list_analyses",
]


def list_analyses(pattern: str = "*") -> list[str]:
    """Return the names of the analyses that match a shell pattern."""
    return [name for name in METHODS.names(pattern) if METHODS[name].analysis]


def is_analysis(label: str) -> bool:
    """Return whether rows of this name are of an analysis, or a variant of one, and not of a method."""
    name = label.partition("-")[0]
    return name in METHODS.names() and METHODS[name].analysis
