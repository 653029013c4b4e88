"""The house: which room may import which, read from every module's own imports."""

import ast
import re
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tests.imports import COMPUTED, ROOT, all_modules, graph, imports_of, loads_computed_names, package_of, statements
from tests.slow_cases import listed

ROOMS = (
    "errors",
    "extras",
    "deprecation",
    "files",
    "memory",
    "sealed",
    "processes",
    "json_record",
    "kinds",
    "namespaces",
    "saved",
    "operators",
    "transform",
    "marking",
    "pytorch",
    "forms",
    "nn",
    "reference",
    "models",
    "inputs",
    "display",
    "interpret",
    "live",
    "attribution",
    "evaluation",
    "in_context",
    "pruning",
    "survey",
    "weights",
    "training",
    "lora",
    "papers",
    "verification",
    "cli",
)
"""From the bottom up: a room imports itself and what stands before it; the last one also the whole, as a user does."""

FORBIDDEN = {"reference": {"transform"}}
"""What is below and still may not be imported: the reference is independent of what it is compared with."""

SYMBOLIC_ROOMS = (
    "errors",
    "expressions",
    "equality",
    "proof",
    "vectorisation",
    "theorems",
    "evaluation",
    "blocks",
    "audit",
    "catalogue",
)
"""The same of the symbolic layer."""


def upward_imports(source, room, package):
    """Return a sentence for every import of the same house that doesn't run downwards."""
    house = package.split(".")[0]
    rooms = SYMBOLIC_ROOMS if house == "symbolic" else ROOMS
    allowed = set(rooms[: rooms.index(room) + 1]) - FORBIDDEN.get(room, set())
    wrong = []
    for line, imported, _ in imports_of(source, package):
        parts = imported.split(".")
        below = len(parts) > 1 and parts[1] in allowed
        as_a_user = room == ROOMS[-1] and (len(parts) == 1 or parts[1] not in ROOMS)
        if parts[0] == house and not below and not as_a_user:
            wrong.append(f"line {line}: {room} imports {imported}")
    return wrong


def dotted(node, names):
    """Return the full name of what an expression reads off an import, if it does."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    owner = dotted(node.value, names) if isinstance(node, ast.Attribute) else None
    return owner and f"{owner}.{node.attr}"


def private_imports(source, package):
    """Return a sentence for every private name that is imported from another room, or read off what is."""
    imports = imports_of(source, package)
    # `import a.b` binds `a`.
    names = {
        name: imported.split(".")[0] if imported.startswith(f"{name}.") else imported for _, imported, name in imports
    }
    used = [(line, imported) for line, imported, _ in imports]
    used += [(n.lineno, dotted(n, names)) for n in ast.walk(ast.parse(source)) if isinstance(n, ast.Attribute)]
    wrong = []
    for line, name in used:
        parts = (name or "").split(".")
        rooms = {"duat_jax": 2, "symbolic": 2}.get(parts[0], 0)
        elsewhere = parts[:rooms] != package.split(".")[:rooms]
        if elsewhere and any(part.startswith("_") and not part.startswith("__") for part in parts):
            wrong.append(f"line {line}: {name} is private")
    return wrong


MODULES = sorted((ROOT / "duat_jax").rglob("*.py"))
SYMBOLIC = sorted((ROOT / "symbolic").rglob("*.py"))


def room_of(file):
    """Return the room in which a module stands."""
    return file.relative_to(ROOT).with_suffix("").parts[1]


PUBLIC = {
    *(
        "__init__",
        "__main__",
        "baselines",
        "circuits",
        "edits",
        "public",
        "plots",
        "records",
        "results",
        "schemas",
        "symbols",
        "targets",
    ),
}
"""Lists of public names, which no room imports."""

OF_SYMBOLIC = PUBLIC | {"matrices", "papers"}
"""The same of the symbolic layer, with its lists of names."""


def test_arrays_are_brought_to_the_host_in_one_place():
    """What JAX offers for it raises for an array that other processes have a part of."""
    users = [file for file in MODULES if "jax.device_get" in file.read_text(encoding="utf-8")]
    assert [room_of(file) for file in users] == ["processes"]


def test_every_module_stands_in_a_room():
    assert {room_of(file) for file in MODULES} - PUBLIC == set(ROOMS)
    assert {room_of(file) for file in SYMBOLIC} - OF_SYMBOLIC == set(SYMBOLIC_ROOMS)


def test_no_module_is_longer_than_a_reader_takes_in():
    long = {file.name for file in MODULES + SYMBOLIC if len(file.read_text(encoding="utf-8").splitlines()) > 350}
    assert not long


def test_every_class_has_a_name_of_its_own():
    for files in (MODULES, SYMBOLIC):
        places: dict[str, list[str]] = {}
        for file in files:
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places.setdefault(node.name.lstrip("_"), []).append(f"{file.relative_to(ROOT)}:{node.lineno}")
        shared = {name: where for name, where in places.items() if len(where) > 1}
        assert not shared, "\n" + "\n".join(f"{name}: {', '.join(where)}" for name, where in sorted(shared.items()))


def test_imports_run_downwards():
    wrong = []
    for file in MODULES + SYMBOLIC:
        if room_of(file) not in (PUBLIC if file in MODULES else OF_SYMBOLIC):
            found = upward_imports(file.read_text(encoding="utf-8"), room_of(file), package_of(file))
            wrong += [f"{file.relative_to(ROOT)} {sentence}" for sentence in found]
    assert not wrong, "\n" + "\n".join(wrong)


def test_files_import_each_other_in_no_circle():
    TopologicalSorter(graph()).prepare()


def names_in(file):
    """Return every name that a module binds, and "*", which stands for whatever there is."""
    names, below = {"*"}, [ast.parse(file.read_text(encoding="utf-8"))]
    while below:
        node = below.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.add(node.name)
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name.split(".")[0])
        below += ast.iter_child_nodes(node)
    return names


def test_every_name_that_is_imported_is_there():
    """Suites that need a browser or PyTorch are collected elsewhere: what they import is checked here."""
    modules = all_modules()
    bound = {name: names_in(file) for name, file in modules.items()}
    wrong = []
    for file in modules.values():
        for line, full, _ in statements(ast.parse(file.read_text(encoding="utf-8")), package_of(file)):
            owner, _, name = full.rpartition(".")
            if owner in modules and full not in modules and not {name, "__getattr__"} & bound[owner]:
                wrong.append(f"{file.relative_to(ROOT)} line {line}: {full}")
    assert not wrong, "\n" + "\n".join(wrong)


def test_a_module_that_is_loaded_by_a_computed_name_is_known():
    """What else loads modules by names that it computes belongs where it can write an import."""
    sources = {name: file for name, file in all_modules().items() if not name.startswith("tests.")}
    computed = {name for name, file in sources.items() if loads_computed_names(file.read_text(encoding="utf-8"))}
    assert computed == set(COMPUTED)


def test_rooms_use_public_names_of_each_other():
    wrong = [
        f"{file.relative_to(ROOT)} {sentence}"
        for file in MODULES + SYMBOLIC
        for sentence in private_imports(file.read_text(encoding="utf-8"), package_of(file))
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_the_symbolic_layer_knows_jax_and_the_package_in_one_room_only():
    wrong = []
    for file in SYMBOLIC:
        allowed = {"jax", "duat_jax"} if room_of(file) == "evaluation" else set()
        for line, imported, _ in imports_of(file.read_text(encoding="utf-8"), package_of(file)):
            if imported.split(".")[0] in {"jax", "jaxlib", "flax", "jaxtyping", "duat_jax"} - allowed:
                wrong.append(f"{file.relative_to(ROOT)} line {line}: {imported}")
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize(
    ("room", "source", "wrong"),
    [
        ("forms", "from duat_jax.models.transformer import Transformer", True),
        ("forms", "def f():\n    import duat_jax.models.loader", True),
        ("forms", "from duat_jax import models", True),
        ("forms", "import duat_jax", True),
        ("forms", "from ..models import loader", True),
        ("forms", "from ..operators import base\nfrom .residual_term import ResidualTerm", False),
        ("forms", "from duat_jax.transform import marks\nfrom duat_jax.errors import DuatError", False),
        ("operators", "from duat_jax.transform.marks import hold", True),
        ("reference", "from duat_jax.transform.replay import Dynamics", True),
        ("reference", "from duat_jax.forms.residual_term import ResidualTerm", False),
        ("cli", "import jax\nfrom duat_jax.interpret.explain.result import explain", False),
        ("cli", "import duat_jax as duat\nfrom duat_jax import explain", False),
        ("verification", "from duat_jax import cli", True),
    ],
)
def test_an_import_that_runs_upwards_is_seen(room, source, wrong):
    assert bool(upward_imports(source, room, f"duat_jax.{room}")) == wrong


@pytest.mark.parametrize(
    ("source", "wrong"),
    [
        ("from duat_jax.transform.marks import _check", True),
        ("from duat_jax.transform._marks import hold", True),
        ("from duat_jax.transform import marks\nmarks._check()", True),
        ("from duat_jax.transform import marks as m\nm.hold._x", True),
        ("import duat_jax.transform.marks\nduat_jax.transform.marks._check()", True),
        ("from duat_jax.transform import marks\nmarks.hold.__name__", False),
        ("from duat_jax.forms.closed_form import _helper", False),
        ("import jax\njax._src", False),
        ("from symbolic.evaluation.bridge import _Reader", True),
    ],
)
def test_a_private_name_of_another_room_is_seen(source, wrong):
    assert bool(private_imports(source, "duat_jax.forms")) == wrong


@pytest.mark.parametrize(
    ("source", "loaded"),
    [
        ("from importlib import import_module\nimport_module('duat_jax.forms.secant')", {"duat_jax.forms.secant"}),
        ("from importlib import import_module as load\nload('.secant', 'duat_jax.forms')", {"duat_jax.forms.secant"}),
        ("import importlib\nimportlib.import_module('duat_jax.cli')", {"duat_jax.cli"}),
        ("def f():\n    return __import__('duat_jax.plots')", {"duat_jax.plots"}),
        ("import pkgutil\npkgutil.resolve_name('duat_jax.forms.secant:secant')", {"duat_jax.forms.secant"}),
        (
            "import importlib\nKINDS = {'flow': 'weights.result:Flow'}\n"
            "def load(kind):\n    return importlib.import_module('duat_jax.' + KINDS[kind].partition(':')[0])",
            {"duat_jax.weights.result"},
        ),
        ("import sys\nx = 'forms.secant'\nsys.modules['duat_jax.' + x]", {"duat_jax.forms.secant"}),
        ("PLACE = 'duat_jax.forms.secant'", set()),
    ],
)
def test_an_import_in_a_string_is_seen(source, loaded):
    assert {name for _, name, _ in imports_of(source, "duat_jax.operators")} >= loaded
    assert bool(loaded) == bool(upward_imports(source, "operators", "duat_jax.operators"))


@pytest.mark.parametrize(
    ("source", "computed"),
    [
        ("from importlib import import_module\nimport_module('duat_jax.forms')", False),
        ("from importlib import import_module\ndef beside(x, name):\n    return import_module(f'{x}.{name}')", True),
        ("import sys\ndef module(x):\n    return sys.modules[x.__module__]", True),
        ("import sys\nsys.modules.get('flax.nnx')", False),
    ],
)
def test_a_computed_name_is_seen(source, computed):
    assert loads_computed_names(source) == computed


def test_the_public_list_is_what_the_package_gives_and_is_loaded_when_it_is_used():
    script = (
        "import sys, duat_jax as duat\n"
        "assert 'jax' not in sys.modules\n"
        "from duat_jax import *\n"
        "names = {n for n in vars(duat.public) if not n.startswith('_')}\n"
        "assert set(duat.__all__) == set(dir(duat)) == names | set(duat.NAMESPACES) and names <= set(globals())\n"
        "assert all(getattr(duat, n) is getattr(duat.public, n) for n in names)\n"
        "assert not hasattr(duat, 'nothing') and not hasattr(duat, '_nothing')\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr


def test_a_namespace_works_as_the_first_name_that_is_used():
    """The package is imported anew for each: other packages, which take most of the time, stay."""
    script = (
        "import sys, duat_jax\n"
        "for name in duat_jax.NAMESPACES:\n"
        "    for module in [m for m in sys.modules if m.partition('.')[0] == 'duat_jax']:\n"
        "        del sys.modules[module]\n"
        "    import duat_jax as duat\n"
        "    assert getattr(duat, name).__name__ == f'duat_jax.{name}'\n"
    )
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert run.returncode == 0, run.stderr


def test_every_slow_case_is_a_case_that_there_is():
    wrong = []
    for case in sorted(listed()):
        file, _, name = case.partition("::")
        last = re.split(r"::|\.", name.partition("[")[0])[-1]
        source = (ROOT / file).read_text(encoding="utf-8") if (ROOT / file).exists() else ""
        if not re.search(rf"^\s*(def|class) {last}\b", source, re.MULTILINE):
            wrong.append(case)
    assert not wrong, "\n" + "\n".join(wrong)


def test_numbers_are_compared_in_one_place():
    """NumPy's comparison allows a relative error of 1e-7 besides the absolute one that is asked for."""
    tests = Path(__file__).parent
    found = [path.name for path in tests.rglob("*.py") if "allclose(" in path.read_text(encoding="utf-8")]
    assert set(found) == {"helpers.py", Path(__file__).name}
