"""Test-time adaptation methods, each a frozen dataclass of its hyper-parameters."""

from faircontext.methods.base import Method, create_method, list_methods, parse_settings
from faircontext.methods.fcl import FCL
from faircontext.methods.zero_shot import ZeroShot

__all__ = ["FCL", "Method", "ZeroShot", "create_method", "list_methods", "parse_settings"]
