"""Figures of the package's shape, from its syntax trees. `python -m tests.measures` prints them."""

import ast
import gc
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import is_dataclass
from enum import Enum
from pathlib import Path
from types import FunctionType, ModuleType

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "safeproducer"

Trees = Mapping[str, ast.Module]
"""By path below the package, as in pipeline/dispatch/dispatcher.py."""
Edges = Mapping[str, set[str]]
_Function = ast.FunctionDef | ast.AsyncFunctionDef
_OWN = ("self", "cls")


def trees(folder: Path = ROOT / PACKAGE) -> dict[str, ast.Module]:
    """The syntax tree of each module."""
    return {
        path.relative_to(folder).as_posix(): ast.parse(path.read_text(encoding="utf-8"))
        for path in sorted(folder.rglob("*.py"))
    }


def module_lines(folder: Path = ROOT / PACKAGE) -> dict[str, int]:
    """Lines of each module."""
    return {
        path.relative_to(folder).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in sorted(folder.rglob("*.py"))
    }


def attributes(modules: Trees) -> dict[str, int]:
    """How many attributes the objects of each class have: assigned to `self`, in slots, or fields of a dataclass."""
    return {
        f"{path}:{node.name}": len(_attributes(node))
        for path, tree in modules.items()
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    }


def function_lines(modules: Trees) -> dict[str, int]:
    """Lines of each function, from its `def` on, with those of the functions inside it."""
    return {name: (node.end_lineno or node.lineno) - node.lineno + 1 for name, node in _functions(modules)}


def foreign_writes(modules: Trees) -> dict[str, int]:
    """How often each module assigns to an attribute of an object that is not `self`."""
    return {
        path: sum(_is_foreign(target) for node in ast.walk(tree) for target in _targets(node))
        for path, tree in modules.items()
    }


def parts(modules: Trees) -> dict[str, int]:
    """How many arguments make an object of each class; of a dataclass those without default, with those of its bases.

    Values are left out.
    """
    classes = [
        (path, node) for path, tree in modules.items() for node in ast.walk(tree) if isinstance(node, ast.ClassDef)
    ]
    by_name = {node.name: node for _, node in classes}
    found: dict[str, int] = {}
    for path, node in classes:
        made = [each for each in node.body if isinstance(each, ast.FunctionDef) and each.name == "__init__"]
        decorators = " ".join(map(ast.unparse, node.decorator_list))
        if made:
            found[f"{path}:{node.name}"] = len(made[0].args.args) - 1 + len(made[0].args.kwonlyargs)
        elif "dataclass" in decorators and "frozen=True" not in decorators:
            found[f"{path}:{node.name}"] = _fields(node, by_name)
    return found


def _fields(node: ast.ClassDef, by_name: Mapping[str, ast.ClassDef]) -> int:
    own = sum(isinstance(each, ast.AnnAssign) and each.value is None for each in node.body)
    return own + sum(_fields(by_name[base], by_name) for base in map(ast.unparse, node.bases) if base in by_name)


def far_reads(modules: Trees) -> int:
    """Attributes read through three and more dots, the one after `self` not counted."""
    chains = [node for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    inner = {id(node.value) for node in chains}
    names = [ast.unparse(node).split(".") for node in chains if id(node) not in inner and _is_dotted(node)]
    return sum(len(name) - (name[0] in _OWN) > 3 for name in names)


def calls_of(modules: Trees, function: str) -> int:
    """How often a function is called by that name."""
    calls = [node.func for tree in modules.values() for node in ast.walk(tree) if isinstance(node, ast.Call)]
    last = function.rpartition(".")[2]  # to write all of them out takes a second
    return sum(
        last in (getattr(call, "attr", ""), getattr(call, "id", "")) and ast.unparse(call) == function for call in calls
    )


def late_constants(modules: Trees) -> dict[str, int]:
    """How many constants of each module stand below its first definition, though they need nothing that it defines."""
    found = dict.fromkeys(modules, 0)
    for path, tree in modules.items():
        defined: set[str] = set()
        for node in tree.body:
            if isinstance(node, ast.ClassDef | _Function):
                defined.add(node.name)
            elif defined and isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                names = _names(_targets(node))
                if defined.isdisjoint(_names(ast.walk(node.value))):
                    found[path] += bool(names) and all(map(str.isupper, names))
                else:
                    defined.update(names)
    return found


def shared_names(modules: Trees) -> list[str]:
    """Names that more than one class has, of those at the top of a module and without an underscore."""
    found = Counter(node.name for tree in modules.values() for node in tree.body if isinstance(node, ast.ClassDef))
    return sorted(name for name, count in found.items() if count > 1 and not name.startswith("_"))


def objects(root: object) -> tuple[int, int]:
    """How many objects of the package's classes are reached from one; references among those that are no values."""
    found, to = {id(root): root}, defaultdict[int, set[int]](set)
    for owner in (waiting := [root]):
        inside, seen = [owner], {id(owner)}
        for holder in inside:
            for each in gc.get_referents(holder):
                if id(each) in seen or isinstance(each, ModuleType | type):
                    continue
                if isinstance(holder, FunctionType) and each is holder.__globals__:
                    continue
                seen.add(id(each))
                if not type(each).__module__.startswith(PACKAGE):
                    inside.append(each)
                    continue
                to[id(owner)].add(id(each))
                if id(each) not in found:
                    found[id(each)] = each
                    waiting.append(each)
    stateful = {number for number, each in found.items() if not _is_value(type(each))}
    return len(found), sum(len(to[number] & stateful) for number in stateful)


def _is_value(kind: type) -> bool:
    frozen = is_dataclass(kind) and kind.__dataclass_params__.frozen  # type: ignore[attr-defined]
    return frozen or issubclass(kind, tuple | Enum | BaseException)


def _is_dotted(node: ast.expr) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name)


def imports(modules: Trees, type_checking: bool | None = None) -> Edges:
    """Which module of the package imports which; with `type_checking` only those under TYPE_CHECKING, or the others."""
    names = {_module(path) for path in modules}
    found: dict[str, set[str]] = {}
    for path, tree in modules.items():
        guards = [node for node in ast.walk(tree) if isinstance(node, ast.If) and _is_guard(node)]
        guarded = {id(each) for guard in guards for part in guard.body for each in ast.walk(part)}
        found[_module(path)] = {
            name
            for node in ast.walk(tree)
            if type_checking is None or type_checking is (id(node) in guarded)
            for name in _imported(node, names)
        } - {_module(path)}
    return found


def upward(modules: Trees) -> list[str]:
    """Imports under TYPE_CHECKING of a module that needs the importer itself: arrows that no import error shows."""
    real = imports(modules, type_checking=False)
    return sorted(
        f"{importer} -> {imported}"
        for importer, wanted in imports(modules, type_checking=True).items()
        for imported in wanted
        if importer in _reached(real, imported)
    )


def circles(edges: Edges) -> list[list[str]]:
    """Modules that import each other, directly or through others."""
    reached = {name: _reached(edges, name) for name in edges}
    found = {
        frozenset({name, *(other for other in reached[name] if name in reached[other])})
        for name in edges
        if name in reached[name]
    }
    return sorted(sorted(circle) for circle in found)


def _attributes(node: ast.ClassDef) -> set[str]:
    found: set[str] = set()
    for statement in node.body:
        if isinstance(statement, ast.Assign) and _names(statement.targets) == ["__slots__"]:
            constants = (each.value for each in ast.walk(statement.value) if isinstance(each, ast.Constant))
            found |= {name for name in constants if isinstance(name, str)}
        elif isinstance(statement, ast.AnnAssign) and any("dataclass" in ast.unparse(d) for d in node.decorator_list):
            found |= set(_names([statement.target]))
        elif isinstance(statement, _Function):
            own = [argument.arg for argument in statement.args.args[:1]]
            for target in (target for each in ast.walk(statement) for target in _targets(each)):
                if isinstance(target, ast.Attribute) and _names([target.value]) == own:
                    found.add(target.attr)
    return found


def _names(nodes: Iterable[ast.AST]) -> list[str]:
    return [node.id for node in nodes if isinstance(node, ast.Name)]


def _functions(modules: Trees) -> Iterator[tuple[str, _Function]]:
    waiting: list[tuple[str, str, ast.AST]] = [(f"{path}:", "", tree) for path, tree in modules.items()]
    for path, prefix, parent in waiting:
        for node in ast.iter_child_nodes(parent):
            name = f"{prefix}{node.name}." if isinstance(node, ast.ClassDef | _Function) else prefix
            if isinstance(node, _Function):
                yield path + name[:-1], node
            waiting.append((path, name, node))


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    """What a statement assigns to, each part of a tuple by itself."""
    found: list[ast.expr] = []
    if isinstance(node, ast.Assign):
        found = list(node.targets)
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.AsyncFor | ast.NamedExpr):
        found = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars is not None:
        found = [node.optional_vars]
    for target in found:
        if isinstance(target, ast.Tuple | ast.List):
            found.extend(target.elts)
        elif isinstance(target, ast.Starred):
            found.append(target.value)
        else:
            yield target


def _is_foreign(target: ast.expr) -> bool:
    return isinstance(target, ast.Attribute) and _names([target.value]) not in [[name] for name in _OWN]


def _is_guard(node: ast.If) -> bool:
    return ast.unparse(node.test).endswith("TYPE_CHECKING")


def _module(path: str) -> str:
    return ".".join([PACKAGE, *path.removesuffix(".py").removesuffix("__init__").strip("/").split("/")]).strip(".")


def _imported(node: ast.AST, names: set[str]) -> set[str]:
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names} & names
    if isinstance(node, ast.ImportFrom) and node.module:
        # `from package import name`: the module of that name where there is one, else the package.
        return {
            next((name for name in (f"{node.module}.{alias.name}", node.module) if name in names), "")
            for alias in node.names
        } - {""}
    return set()


def _reached(edges: Edges, start: str) -> set[str]:
    found: set[str] = set()
    waiting = [start]
    while waiting:
        for name in edges.get(waiting.pop(), set()) - found:
            found.add(name)
            waiting.append(name)
    return found


def _report() -> None:
    modules = trees()
    tables: dict[str, Mapping[str, int]] = {
        "attributes of a class": attributes(modules),
        "lines of a module": module_lines(),
        "lines of a function": function_lines(modules),
        "assignments to another object's attributes": foreign_writes(modules),
        "parts that a constructor takes": parts(modules),
        "constants below a definition": late_constants(modules),
    }
    for title, figures in tables.items():
        print(f"\n{title}")
        for name, figure in sorted(figures.items(), key=lambda item: -item[1])[:30]:
            print(f"  {figure:5} {name}")
    totals: defaultdict[str, int] = defaultdict(int)
    for path, lines in module_lines().items():
        totals[path.split("/")[0]] += lines
    print("\nlines of a folder\n" + "\n".join(f"  {lines:5} {name}" for name, lines in sorted(totals.items())))
    print("\nimports upward for type checkers\n  " + "\n  ".join(upward(modules)))
    print("\nimport circles\n  " + "\n  ".join(", ".join(circle) for circle in circles(imports(modules))))


if __name__ == "__main__":
    _report()
