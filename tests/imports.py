"""The imports of the repository's own modules, read from their sources: statements, and names in strings."""

import ast
import re
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parent.parent

LOADERS = {"importlib.import_module", "pkgutil.resolve_name", "runpy.run_module", "sys.modules", "__import__"}
"""Functions that load a module by its name."""

COMPUTED = {"duat_jax", "symbolic", "experiments.studies", "experiments.fields", "duat_jax.cli.every_command"}
"""The modules that load others by computed names: a public name when it is first used, a study, and a command."""


def package_of(file):
    """Return the dotted package in which a module stands."""
    return ".".join(file.relative_to(ROOT).with_suffix("").parts[:-1])


@cache
def all_modules():
    """Return the file of every module of the repository, by its dotted name, a package's by that of the package."""
    files = [
        file
        for file in ROOT.glob("*/**/*.py")
        if not re.search(r"/(node_modules|\.[^/]*|build|site)/", f"/{file.relative_to(ROOT)}")
    ]
    names = (package_of(file) if file.stem == "__init__" else f"{package_of(file)}.{file.stem}" for file in files)
    return dict(zip(names, files, strict=True))


def statements(tree, package):
    """Return every import statement, wherever it stands: line, what is imported in full, and its name here."""
    imports = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            imports += [(node.lineno, alias.name, alias.asname or alias.name.split(".")[0]) for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: package.count(".") + 2 - node.level] if node.level else []
            module = [*parents, *([node.module] if node.module else [])]
            imports += [
                (node.lineno, ".".join([*module, alias.name]), alias.asname or alias.name) for alias in node.names
            ]
    return imports


def dotted(node, names):
    """Return the full name of what an expression reads off an import, if it does."""
    if isinstance(node, ast.Name):
        return names.get(node.id)
    owner = dotted(node.value, names) if isinstance(node, ast.Attribute) else None
    return owner and f"{owner}.{node.attr}"


def names_of(imports):
    """Return what each name of a module stands for: `import a.b` binds `a`."""
    return {
        name: imported.split(".")[0] if imported.startswith(f"{name}.") else imported for _, imported, name in imports
    }


def loads(tree, package):
    """Yield every place where a module is loaded by a name: its line, and the expression of the name."""
    names = names_of(statements(tree, package)) | {"__import__": "__import__"}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node.args:
            called = dotted(node.func, names)
            if called in LOADERS or called == "sys.modules.get":
                yield node.lineno, node.args[0]
        elif isinstance(node, ast.Subscript) and dotted(node.value, names) == "sys.modules":
            yield node.lineno, node.slice


def loads_computed_names(source):
    """Return whether a module loads another one by a name that isn't written out."""
    return any(not isinstance(name, ast.Constant) for _, name in loads(ast.parse(source), ""))


def imports_of(source, package):
    """Return every import of a module: line, what is imported in full, and its name here.

    In a module that loads others by name, each string counts that names a module of the repository, in full, below the
    module's house or its package, whatever joins it.
    """
    tree = ast.parse(source)
    imports = statements(tree, package)
    if list(loads(tree, package)):
        strings = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        named = {node.value for node in strings if "." in node.value}
        packages = {package.split(".")[0], package, *named} & set(all_modules())
        for node in strings:
            name = node.value.partition(":")[0].lstrip(".")
            full = [name, *(f"{parent}.{name}" for parent in packages)]
            imports += [(node.lineno, each, "") for each in full if "." in each and each in all_modules()]
    return imports


def loaded_by(name):
    """Return every module that a module of `experiments` loads by a computed name: studies, and what has fields."""
    pattern = {"experiments.studies": r"^STUDY = ", "experiments.fields": r"^def fields\(|import .*\bfields\b"}.get(
        name
    )
    rooms = ("experiments.", "benchmarks.")
    files = {each: file for each, file in all_modules().items() if pattern and each.startswith(rooms)}
    return [each for each, file in files.items() if re.search(pattern, file.read_text(encoding="utf-8"), re.MULTILINE)]


def graph():
    """Return the modules that each module of the repository imports."""
    modules = all_modules()
    imported = {}
    for name, file in modules.items():
        source = file.read_text(encoding="utf-8")
        package = package_of(file)
        imports = imports_of(source, package)
        # `from module import name` imports the module, `from package import module` one of its modules.
        given = [full if full in modules else full.rpartition(".")[0] for _, full, _ in imports]
        given += loaded_by(name)
        imported[name] = {each for each in given if each in modules and each != name}
    return imported
