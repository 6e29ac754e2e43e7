"""Ed25519 keys for certificates: reading, making, signing, checking.

Law: the key is a PEM file (PKCS#8, not encrypted) or 64 hex digits; whatever is wrong with it is a usage error that names the
file. `cryptography` is an extra (`pip install 'cmfspec[sign]'`), imported when a key is in play; without it nothing that is
signed passes for checked.
"""

from __future__ import annotations

import os
import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

LARGEST = 16 * 1024  # bytes of a key file
HEX = re.compile(r"[0-9a-fA-F]{64}")
WANTED = "an Ed25519 key: PEM (PKCS#8, not encrypted), or 64 hex digits"


class NoCryptography(Exception):
    """The package that checks signatures is not installed."""

    def __init__(self) -> None:
        super().__init__("the package `cryptography` is not installed: pip install 'cmfspec[sign]'")


def new_key(path: str) -> str:
    """Make a key in a new file that only its owner can read, and return the public key in hex. Raises click.UsageError."""
    hazmat, ed25519 = _cryptography()
    key = ed25519.Ed25519PrivateKey.generate()
    pem = key.private_bytes(hazmat.Encoding.PEM, hazmat.PrivateFormat.PKCS8, hazmat.NoEncryption())
    try:
        handle = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise click.UsageError(f"--new-key {path}: {error.strerror}") from None
    with os.fdopen(handle, "wb") as file:
        file.write(pem)
    return public_of(key)


def private_key(path: str) -> Ed25519PrivateKey:
    """The private key in a file. Raises click.UsageError."""
    hazmat, ed25519 = _cryptography()
    raw = _content("--key", path)
    if HEX.fullmatch(_ascii(raw)):
        found: Any = ed25519.Ed25519PrivateKey.from_private_bytes(bytes.fromhex(_ascii(raw)))
    else:
        try:
            found = hazmat.load_pem_private_key(raw, None)
        except Exception as error:  # the library's own kinds change from version to version
            raise click.UsageError(f"--key {path}: {_first_line(error)}; wanted {WANTED}") from None
    if not isinstance(found, ed25519.Ed25519PrivateKey):
        raise click.UsageError(f"--key {path}: found a key of another kind, wanted {WANTED}")
    key: Ed25519PrivateKey = found
    return key


def public_key(given: str) -> str:
    """The public key in hex, given as that or as a file that holds it. Raises click.UsageError."""
    if HEX.fullmatch(given):
        return given.lower()
    raw = _content("--pubkey", given)
    if HEX.fullmatch(_ascii(raw)):
        return _ascii(raw).lower()
    hazmat, ed25519 = _cryptography()
    try:
        found = hazmat.load_pem_public_key(raw)
    except Exception as error:
        raise click.UsageError(
            f"--pubkey {given}: {_first_line(error)}; wanted a public key, PEM or 64 hex digits"
        ) from None
    if not isinstance(found, ed25519.Ed25519PublicKey):
        raise click.UsageError(f"--pubkey {given}: found a key of another kind, wanted Ed25519")
    return str(found.public_bytes_raw().hex())


def public_of(key: Ed25519PrivateKey) -> str:
    """The public key in hex."""
    return key.public_key().public_bytes_raw().hex()


def sign(key: Ed25519PrivateKey, message: bytes) -> str:
    """The signature in hex."""
    return key.sign(message).hex()


def signed_by(public: str, signature: str, message: bytes) -> bool:
    """Whether the signature (hex) is this key's (hex). Raises NoCryptography."""
    try:
        from cryptography.exceptions import InvalidSignature
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    except ImportError:
        raise NoCryptography from None
    with suppress(InvalidSignature, ValueError):  # ValueError: bytes that are no key
        Ed25519PublicKey.from_public_bytes(bytes.fromhex(public)).verify(bytes.fromhex(signature), message)
        return True
    return False


def _cryptography() -> tuple[Any, Any]:
    """(serialization, ed25519). Raises click.UsageError where there are none."""
    try:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise click.UsageError(str(NoCryptography())) from None
    return serialization, ed25519


def _content(option: str, path: str) -> bytes:
    try:
        if not Path(path).is_file():  # a FIFO would be waited for
            raise click.UsageError(f"{option} {path}: no such file")
        with Path(path).open("rb") as file:
            return file.read(LARGEST)
    except (OSError, ValueError) as error:
        raise click.UsageError(f"{option} {path}: {getattr(error, 'strerror', None) or error}") from None


def _ascii(raw: bytes) -> str:
    return raw.decode("ascii", "replace").strip()


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0][:120] or type(error).__name__
