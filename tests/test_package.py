"""The package as a whole: what importing it costs, who may import whom, what is public."""

import ast
import functools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import labeltrace

ROOT = Path(labeltrace.__file__).parent
FILES = sorted(ROOT.rglob("*.py"))

# The folders in the order of the data (design, section 1): a file imports its own folder and those before it.
ORDER = [
    "data", "models", "scoring", "control", "learners", "plugins", "engine", "audit", "diagnostics", "report", "review",
    "bench",
]  # fmt: skip
USERS = {"experiments", "commands"}  # of everything
#: what every folder may use, and which uses no folder
BASE = {"errors", "files", "registry", "validation"}
HEAVY = {
    "sklearn", "scipy", "pandas", "pyarrow", "pydantic", "typer", "rich", "matplotlib", "lightning_fabric", "PIL",
}  # fmt: skip


def name(path):
    return path.relative_to(ROOT).as_posix()


@functools.cache
def tree(path):
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path):
    """Every module that a file imports, anywhere in it, by its full name; `from a import b` counts as a.b."""
    package = ("labeltrace", *path.relative_to(ROOT).parts[:-1])
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            above = package[: len(package) - node.level + 1] if node.level else ()
            base = ".".join([*above, *([node.module] if node.module else [])])
            yield from (f"{base}.{alias.name}" for alias in node.names)


def own(path):
    """The folders and files of the package that a file imports, by their first name: `data`, `errors`, …"""
    return {module.split(".")[1] for module in imported(path) if module.startswith("labeltrace.")}


def folder(path):
    parts = path.relative_to(ROOT).parts
    return parts[0] if len(parts) > 1 else path.stem


@pytest.mark.parametrize(("code", "heavy"), [("import labeltrace.cli", {"typer", "rich"}), ("labeltrace.Trace", set())])
def test_importing_is_light(code, heavy):
    """The command answers without torch; a training loop of one's own needs torch and nothing of the rest."""
    code = f"import json, sys, labeltrace; {code}; print(json.dumps(sorted({{n.split('.')[0] for n in sys.modules}})))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(json.loads(done.stdout))
    assert ("torch" in loaded) == (not heavy)
    assert loaded & HEAVY <= heavy


def test_the_walk_sees_what_is_imported():
    """Or the tests below would pass on nothing."""
    assert len(FILES) > 40
    others = {module.split(".")[0] for path in FILES for module in imported(path)}
    assert others >= {"torch", "numpy", "sklearn", "pyarrow", "lightning_fabric"}  # sklearn only inside functions
    assert {"engine", "audit", "data", "errors"} <= {part for path in FILES for part in own(path)}


def test_every_folder_has_its_place():
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} <= {*ORDER, *USERS}


@pytest.mark.parametrize("path", [path for path in FILES if folder(path) in ORDER], ids=name)
def test_lower_folders_never_import_higher_ones(path):
    place = ORDER.index(folder(path))
    allowed = {*BASE, *ORDER[: place + 1]}
    if place > ORDER.index("control"):
        allowed.add("__version__")  # the package itself, which imports scoring and control
    assert own(path) <= allowed


@pytest.mark.parametrize("path", [path for path in FILES if folder(path) in BASE], ids=name)
def test_the_base_imports_no_folder(path):
    assert own(path) <= BASE


@pytest.mark.parametrize("path", [path for path in FILES if folder(path) in ("scoring", "control")], ids=name)
def test_scoring_and_control_stand_alone(path):
    """Somebody with their own loop takes them and nothing else."""
    assert own(path) <= ({"scoring"} if folder(path) == "scoring" else {"scoring", "control"})
    others = {module.split(".")[0] for module in imported(path)} - {"labeltrace", *sys.stdlib_module_names}
    assert others <= {"torch", "numpy", "sklearn"}


@pytest.mark.parametrize("path", FILES, ids=name)
def test_torchvision_and_timm_are_imported_nowhere(path):
    allowed = {"timm"} if name(path) == "models/timm.py" else set()  # the extra, imported when a timm model is named
    assert {module.split(".")[0] for module in imported(path)} & {"torchvision", "timm"} <= allowed


@pytest.mark.parametrize("path", [path for path in FILES if name(path) != "commands/console.py"], ids=name)
def test_the_library_prints_nothing(path):
    calls = [node.func for node in ast.walk(tree(path)) if isinstance(node, ast.Call)]
    assert not [call for call in calls if isinstance(call, ast.Name) and call.id == "print"]


@pytest.mark.parametrize("public", labeltrace.__all__)
def test_public_names_are_documented(public):
    documentation = getattr(labeltrace, public).__doc__
    assert documentation and len(documentation.split()) > 3
    assert not documentation.startswith(f"{public}(")  # what a dataclass says when its author says nothing


def test_public_names_are_those_of_the_design():
    assert {"Trace", "Evidence", "score"} <= set(labeltrace.__all__)
    assert len(set(labeltrace.__all__)) == len(labeltrace.__all__)


def test_the_version_is_written_once():
    project = (ROOT.parents[1] / "pyproject.toml").read_text(encoding="utf-8")
    assert re.search(r'^version = "(.*)"', project, re.MULTILINE)[1] == labeltrace.__version__


def test_the_package_is_typed():
    assert (ROOT / "py.typed").exists()
