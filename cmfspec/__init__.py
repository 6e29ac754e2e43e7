"""The executable spec of CMF v2: read, verify, build and judge `.cmf` files.

The supported import API is what this module names; each name is loaded when first used, so importing cmfspec is free.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cmfspec.contract.sdk import serve
    from cmfspec.engine import Model, load
    from cmfspec.errors import Fault, Refusal
    from cmfspec.format.container import Container, faults, open
    from cmfspec.format.hash64 import hash64
    from cmfspec.format.verify import verify

__version__ = "0.1.0"
__all__ = ["Container", "Fault", "Model", "Refusal", "faults", "hash64", "load", "open", "serve", "verify"]

_HOME = {
    "Container": "cmfspec.format.container",
    "Fault": "cmfspec.errors",
    "Model": "cmfspec.engine",
    "Refusal": "cmfspec.errors",
    "faults": "cmfspec.format.container",
    "hash64": "cmfspec.format.hash64",
    "load": "cmfspec.engine",
    "open": "cmfspec.format.container",
    "serve": "cmfspec.contract.sdk",
    "verify": "cmfspec.format.verify",
}


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module 'cmfspec' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)
