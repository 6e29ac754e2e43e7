"""The keys of a configuration, read one by one.

Law: a key that is read is spoken for; what stays unread at the end can be named. A value has the type that is asked for,
or is refused with the line that it stands in.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import isfinite
from typing import Any, Final

from cmfspec.tools.unpackable import JsonFile, Unpackable, shown


class _Missing:
    """The type of MISSING."""


MISSING: Final = _Missing()  # no value: a key that must be there; any value: a neutral key that nobody reads
MAX_INTEGER = 2**32 - 1


@dataclass(frozen=True)
class Settings:
    """An object of a JSON file. path: the keys above it; assumed: what a key that isn't there counts as."""

    file: JsonFile
    node: Mapping[str, Any]
    path: str = ""
    assumed: Mapping[str, Any] = field(default_factory=dict)
    _read: set[str] = field(default_factory=set)

    def __contains__(self, key: str) -> bool:
        return key in self.node

    @property
    def model_type(self) -> str:
        """Which family; known to be a string once it was checked."""
        return str(self.node["model_type"])

    def assuming(self, assumed: Mapping[str, Any]) -> Settings:
        """The same with what counts for keys that aren't there."""
        return replace(self, assumed=assumed)

    def below(self, key: str, node: Mapping[str, Any]) -> Settings:
        """An object inside this one."""
        return Settings(self.file, node, f"{self.path}{key}.")

    def bad(self, key: str, found: object, wanted: str) -> Unpackable:
        """The refusal of a key's value."""
        return self.file.bad(key, found, wanted, self.path)

    def peek(self, key: str) -> Any:
        """The value, or what counts for it, or None; unread."""
        return self.node.get(key, self.assumed.get(key))

    def optional(self, key: str) -> Any:
        """The value, or what counts for it, or None."""
        self._read.add(key)
        return self.peek(key)

    def _value(self, key: str, otherwise: Any) -> Any:
        """The value. A null counts as absent where something else does."""
        found = self.optional(key)
        if found is None:
            found = otherwise
        if found is MISSING:
            raise self.bad(key, "null" if key in self.node else "nothing", "a value")
        return found

    def integer(self, key: str, otherwise: Any = MISSING, least: int = 1, most: int = MAX_INTEGER) -> int:
        """A count. otherwise: for one that isn't there, of any value. Raises Unpackable."""
        found = self._value(key, otherwise)
        if found is otherwise:
            return int(found)
        if type(found) is not int or not least <= found <= most:
            raise self.bad(key, shown(found), f"an integer from {least} to {most}")
        return found

    def number(self, key: str, otherwise: Any = MISSING, whole: bool = False) -> float:
        """A positive number. whole: an integer stays one. Raises Unpackable."""
        found = self._value(key, otherwise)
        if type(found) not in (int, float) or not isfinite(found) or found <= 0:
            raise self.bad(key, shown(found), "a number above 0")
        return found if whole and isinstance(found, int) else float(found)

    def flag(self, key: str, otherwise: Any = MISSING) -> bool:
        """True or false. Raises Unpackable."""
        found = self._value(key, otherwise)
        if not isinstance(found, bool):
            raise self.bad(key, shown(found), "true or false")
        return found

    def unread(self) -> dict[str, Any]:
        """What nobody has asked for."""
        return {key: value for key, value in self.node.items() if key not in self._read}
