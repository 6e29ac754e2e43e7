"""`cmfspec verify` and `cmfspec inspect`: a file, for whoever has it in hand."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import cmfspec
from cmfspec.errors import Fault, Refusal
from cmfspec.format.container import Container, read
from cmfspec.format.verify import unfit, unprotected
from cmfspec.layout import DTYPE_NAMES, FEATURE_NAMES, SECTIONS
from runner.exits import EXIT_FAILED
from runner.terminal import safe

ARCH_SHOWN = (
    "arch_name",
    "num_layers",
    "hidden_size",
    "intermediate_size",
    "num_attention_heads",
    "num_kv_heads",
    "vocab_size",
)


def _print_json(value: Any) -> None:
    json.dump(value, sys.stdout, ensure_ascii=True, indent=1)
    print()


def refused(file: str, as_json: bool) -> int:
    """Say every fault of a file that can't be opened; the exit code."""
    try:
        found = list(cmfspec.faults(read(file)))
    except Refusal as refusal:
        found = [refusal.fault]
    if as_json:
        _print_json({"file": file, "status": "refused", "faults": [asdict(fault) for fault in found]})
    else:
        show_faults(file, found)
    return EXIT_FAILED


def show_faults(file: str, found: Sequence[Fault]) -> None:
    """Say for people why a file is refused; the first twenty faults of it."""
    print(f"{file}: refused")
    for fault in found[:20]:
        print(f"  {safe(str(fault))}")
    if len(found) > 20:
        print(f"  and {len(found) - 20} more")
    print(f"`cmfspec explain {found[0].rule}` says what the spec wants")


def verify_command(file: str, as_json: bool, values: bool = False) -> int:
    """`cmfspec verify`: the exit code. values: look at every weight, too."""
    try:
        opened = cmfspec.open(file)
    except Refusal:
        return refused(file, as_json)
    problems = [*cmfspec.verify(opened), *(unfit(opened) if values else ())]
    bare = unprotected(opened)
    if as_json:
        rows = [asdict(problem) for problem in problems]
        state = "damaged" if problems else "sound"
        _print_json({"file": file, "status": state, "tensors": len(opened), "problems": rows, "unprotected": bare})
    else:
        print(f"{file}: {'damaged' if problems else 'sound'}, {len(opened)} tensors")
        for problem in problems:
            print(f"  {safe(str(problem))}")
        if bare:
            print(f"  no hash covers: {', '.join(bare)}")
    return EXIT_FAILED if problems else 0


def inspect_command(file: str, as_json: bool) -> int:
    """`cmfspec inspect`: the exit code."""
    try:
        opened = cmfspec.open(file)
    except Refusal:
        return refused(file, as_json)
    if as_json:
        _print_json({"file": file, **_described(opened)})
    else:
        _show(file, opened)
    return 0


def _described(opened: Container) -> dict[str, Any]:
    envelope = opened.view.envelope
    tensors = [
        {**asdict(tensor), "dtype": tensor.dtype_name, "shape": list(tensor.shape), "hash": f"{tensor.hash:016x}"}
        for tensor in opened
    ]
    return {
        "version": envelope["version"],
        "required_features": envelope["required_features"],
        "features": _features(opened),
        "sections": {name: list(opened.view.span(name)) for name in SECTIONS},
        "header": opened.header,
        "tensors": tensors,
    }


def _features(opened: Container) -> list[str]:
    bits = opened.view.envelope["required_features"]
    return [name for bit, name in enumerate(FEATURE_NAMES) if bits >> bit & 1]


def _show(file: str, opened: Container) -> None:
    size = opened.view.size
    print(
        f"{file}: CMF v{opened.view.envelope['version']}, {size:,} bytes, {', '.join(_features(opened)) or 'no features'}"
    )
    arch = opened.header.get("arch")
    if isinstance(arch, dict):
        shown = [f"{key} {safe(str(arch[key]))}" for key in ARCH_SHOWN if key in arch]
        print(f"  arch      {', '.join(shown)}")
    for name in SECTIONS:
        off, length = opened.view.span(name)
        print(f"  {name:<9} " + (f"{length:>12,} bytes at 0x{off:x}" if opened.view.present(name) else "absent"))
    counts: dict[int, list[int]] = {}
    for tensor in opened:
        entry = counts.setdefault(tensor.dtype, [0, 0])
        entry[0] += 1
        entry[1] += tensor.nbytes
    listed = [f"{n} {DTYPE_NAMES[dtype]} ({nbytes:,} bytes)" for dtype, (n, nbytes) in sorted(counts.items())]
    print(f"  tensors   {', '.join(listed) or 'none'}")
    for t in opened:
        print(f"    {t.index:>5}  {t.dtype_name:<8} {list(t.shape)!s:<20} {t.nbytes:>12,}  {safe(t.name)}")
