"""Classes that read `.cmf` files, right and wrong, to be wrapped by the Python adapter."""

from __future__ import annotations

import struct
from types import SimpleNamespace

import cmfspec
from cmfspec.errors import Refusal, UnsupportedFeature
from cmfspec.format.container import read
from cmfspec.layout import ENVELOPE_AT, IMPLEMENTED_FEATURES

NOT_A_CLASS = 7


class Ours:
    """Our own reader."""

    def __init__(self, path):
        self.opened = self.open(read(path))
        self.tensors = [*self.opened]

    def open(self, content):
        return cmfspec.open(content)

    def tensor(self, name):
        return self.opened.values(self.opened.index_of(name))


class AsMapping(Ours):
    """The same, otherwise said."""

    def __init__(self, path):
        super().__init__(path)
        self.tensors = {
            t.name: SimpleNamespace(dtype=t.dtype_name, shape=t.shape, off=t.off, nbytes=t.nbytes, hash=f"{t.hash:016X}")
            for t in self.opened
        }  # fmt: skip

    def tensor(self, name):
        return super().tensor(name).astype("f8").tolist()


class NamesOnly(Ours):
    """Its entries say no more than a name."""

    def __init__(self, path):
        super().__init__(path)
        self.tensors = (SimpleNamespace(name=t.name) for t in self.opened)


class LaxAboutFeatures(Ours):
    """Clears the feature bits that it doesn't know, instead of refusing."""

    def open(self, content):
        try:
            return super().open(content)
        except UnsupportedFeature:
            at = ENVELOPE_AT["required_features"]
            known = struct.unpack_from("<I", content, at)[0] & sum(1 << bit for bit in IMPLEMENTED_FEATURES)
            return super().open(bytes(content[:at]) + struct.pack("<I", known) + bytes(content[at + 4 :]))


class RaisesAnything(Ours):
    """Its refusals are whatever happened to be raised."""

    def open(self, content):
        try:
            return super().open(content)
        except Refusal as refusal:
            raise KeyError(str(refusal)) from None


class OffByOne(Ours):
    """Decodes the payload of the next tensor."""

    def tensor(self, name):
        return self.opened.values((self.opened.index_of(name) + 1) % len(self.opened))


class Mislabelled(Ours):
    """Refuses for the wrong reason."""

    def open(self, content):
        try:
            return super().open(content)
        except Refusal as refusal:
            raise Parse(str(refusal)) from None


class Parse(Refusal):
    """Another library's name for all that goes wrong."""

    def __init__(self, message):
        Exception.__init__(self, message)


class Complex(Ours):
    """Its values are no weights."""

    def tensor(self, name):
        return super().tensor(name) + 1j
