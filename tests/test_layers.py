"""The layers go one way: cmfspec < golden < fuzz < conformance < runner."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("cmfspec", "golden", "fuzz", "conformance", "runner")
ROWS = (*("errors", "layout", "spec"), "kernels", "codecs", "format", "engine", "tools", "contract")
EXCEPTION = ("cmfspec/__main__.py", "runner.cli")


def imports(path: Path) -> Iterator[str]:
    """Every module that a file imports, wherever in it."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            yield from names
            if not all(is_module(name) for name in names):  # modules out of a package: nothing of the package's own
                yield node.module or ""


def is_module(name: str) -> bool:
    """Whether one of our files is that module."""
    path = ROOT / name.replace(".", "/")
    return path.with_suffix(".py").is_file() or (path / "__init__.py").is_file()


def ours() -> Iterator[tuple[str, str]]:
    """(file, imported module) for our own modules."""
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            yield from ((name, module) for module in imports(path) if module.split(".")[0] in PACKAGES)


def test_no_package_imports_from_above() -> None:
    """A module imports from its own package or from those below."""
    for file, module in ours():
        if (file, module) == EXCEPTION or (file, module) == (EXCEPTION[0], f"{EXCEPTION[1]}.main"):
            continue
        here, there = file.split("/")[0], module.split(".")[0]
        assert PACKAGES.index(there) <= PACKAGES.index(here), f"{file} imports {module}"


def test_the_rows_of_cmfspec_go_one_way() -> None:
    """errors and layout, kernels, codecs, format, contract: never upwards. The package itself only names things lazily."""
    for file, module in ours():
        parts, target = file.split("/"), module.split(".")
        if parts[0] != "cmfspec" or target[0] != "cmfspec" or (len(parts) == 2 and parts[1].startswith("__")):
            continue
        here = parts[1].removesuffix(".py")
        if len(target) > 1 and target[1] in ROWS:
            assert ROWS.index(target[1]) <= ROWS.index(here), f"{file} imports {module}"


def test_there_is_no_cycle() -> None:
    """Not even within a row."""
    graph: dict[str, set[str]] = {}
    known = {path.relative_to(ROOT).as_posix(): path for package in PACKAGES for path in (ROOT / package).rglob("*.py")}
    names = {name.removesuffix(".py").removesuffix("/__init__").replace("/", "."): name for name in known}
    for file, module in ours():
        if file != EXCEPTION[0] and file != "cmfspec/__init__.py" and module in names:
            graph.setdefault(file, set()).add(names[module])
    done: set[str] = set()

    def visit(file: str, trail: tuple[str, ...]) -> None:
        assert file not in trail, " -> ".join((*trail, file))
        if file not in done:
            for target in graph.get(file, ()):
                if target != file:
                    visit(target, (*trail, file))
            done.add(file)

    for file in graph:
        visit(file, ())


def test_the_generic_packages_hold_a_docstring_only() -> None:
    """Four of the names are generic: what may be overwritten by a stranger must not matter."""
    for package in PACKAGES[1:]:
        body = ast.parse((ROOT / package / "__init__.py").read_text("utf-8")).body
        assert len(body) == 1
        assert isinstance(body[0], ast.Expr)
