"""Text from a file or from an implementation, on its way to a terminal.

Law: escape sequences are shown, not obeyed.
"""

from __future__ import annotations


def safe(text: str) -> str:
    """The text if all of it can be printed, else with its odd characters escaped."""
    return text if text.isprintable() else ascii(text)[1:-1]
