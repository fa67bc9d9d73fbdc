"""Who may import whom, and what a pure package may not touch: the rules of docs/architecture.md, enforced."""

import ast
import json
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "moldau"

# ---------------------------------------------------------------------------------------------- the tables


@dataclass(frozen=True, slots=True)
class Package:
    """One row: a package, what it may import besides itself and the outside world, and how pure it is."""

    name: str
    may_import: tuple[str, ...]
    purity: str = "no"

    @property
    def is_pure(self) -> bool:
        return self.purity in ("yes", "given a Disk")


ANYTHING = ("anything",)
CORES = ("model", "wire", "log", "raft", "metadata", "replica", "coordinator")
BELOW_NODE = (*CORES, "world", "client")
BELOW_APPS = ("model", "wire.records", "client")

PACKAGES = (
    Package("model", (), "yes"),
    Package("wire", ("model",), "yes"),
    Package("log", ("model", "wire", "world.ports"), "given a Disk"),
    Package("raft", ("model", "wire"), "yes"),
    Package("metadata", ("model", "wire"), "yes"),
    Package("replica", ("model", "wire", "log", "metadata.image"), "given a Disk"),
    Package("coordinator", ("model", "wire", "metadata.image"), "yes"),
    Package("world", ("model",)),
    Package("client", ("model", "wire", "world")),
    Package("node", BELOW_NODE),
    Package("sim", (*BELOW_NODE, "node"), "seeded"),
    Package("registry", BELOW_APPS),
    Package("registry.compat", ("model",), "yes"),
    Package("spark", BELOW_APPS),
    Package("spark.plan", ("model",), "yes"),
    Package("console", BELOW_APPS),
    Package("bench", ("model", "wire", "client")),
    # It starts brokers as a user does, by the command line: whoever tests an application loads no broker.
    Package("testing", ("client",)),
    Package("cli", ANYTHING),
)

# The two modules that stand outside every package; what the first imports, it imports when it is asked for.
TOP_LEVEL = {
    "__init__": Package("__init__", ("testing",)),
    "__main__": Package("__main__", ("cli",)),
}

# The machine, and whatever gives a different answer the second time.
IMPURE_MODULES = frozenset(
    (
        *("asyncio", "concurrent", "multiprocessing", "queue", "sched", "signal", "subprocess", "threading"),
        *("datetime", "random", "secrets", "time", "uuid"),
        *("fcntl", "glob", "io", "mmap", "os", "pathlib", "shutil", "tempfile"),
        *("http", "select", "selectors", "socket", "socketserver", "ssl", "urllib"),
    )
)
IMPURE_CALLS = frozenset({"open", "input"})

# Libraries too heavy for every process to load, and the only places that may name them.
HEAVY_LIBRARIES = {
    "numpy": ("wire.records.pure", "wire.records.columns", "spark"),
    "pandas": ("spark",),
    "pyarrow": ("wire.records.columns", "spark"),
    "pyspark": ("spark",),
    "rich": ("cli",),
}
# The modules that exist for such a library; who needs one imports it inside a function.
HEAVY_MODULES = ("wire.records.columns", "spark")

MAY_PRINT = ("cli",)
MAY_USE_ANY = ("wire.compiler", "wire.types")

# What may be given a set because its order does not matter there, and what may not because it does.
ORDER_FREE = frozenset({"all", "any", "bool", "frozenset", "len", "max", "min", "set", "sorted", "sum"})
ORDER_BOUND = frozenset(
    {"dict", "enumerate", "extend", "filter", "fromkeys", "iter", "join", "list", "map", "tuple", "zip"}
)
SET_METHODS = frozenset({"copy", "difference", "intersection", "symmetric_difference", "union"})


# ---------------------------------------------------------------------------------------------- the code


def module_name(path: Path) -> str:
    """`wire/records/header.py` is `wire.records.header`, `wire/__init__.py` is `wire`."""
    parts = path.with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 1 else parts)


MODULES = {module_name(path.relative_to(SOURCE)): path for path in sorted(SOURCE.rglob("*.py"))}


@pytest.mark.parametrize("module", MODULES)
def test_a_module_keeps_the_rules(module: str) -> None:
    path = MODULES[module]
    assert violations(module, path.read_text(), is_package=path.name == "__init__.py") == []


def test_the_package_that_spark_imports_in_every_session_has_the_data_source_and_nothing_else() -> None:
    (path,) = (ROOT / "src" / "pyspark_moldau").rglob("*.py")
    imports = absolute_imports(ast.parse(path.read_text()), "pyspark_moldau", is_package=True)
    assert [name for _, name in imports] == ["moldau.spark.datasource.MoldauDataSource"]


def test_every_package_has_a_row_in_the_table() -> None:
    packages = {module.partition(".")[0] for module in MODULES} - set(TOP_LEVEL)
    assert packages <= {package.name for package in PACKAGES}


def test_the_table_has_no_cycles() -> None:
    rows = {package.name: package for package in PACKAGES if package.may_import != ANYTHING}
    reached: dict[str, set[str]] = {}

    def reach(name: str) -> set[str]:
        if name not in reached:
            reached[name] = set()
            for target in rows[name].may_import:
                top = target.partition(".")[0]
                reached[name] |= {top} | reach(top)
        return reached[name]

    assert [name for name in rows if name in reach(name)] == []


def test_the_documentation_shows_the_table_that_is_enforced() -> None:
    rows = ["| package | may import | pure |", "|---|---|---|"]
    rows += [f"| {p.name} | {', '.join(p.may_import) or '–'} | {p.purity} |" for p in PACKAGES]
    table = "\n".join(rows)
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert table in page, f"put this into docs/architecture.md:\n\n{table}"


def test_heavy_libraries_are_not_loaded_before_they_are_used() -> None:
    light = [
        module
        for module in MODULES
        if not is_within(module, HEAVY_MODULES) and not module.startswith(("cli.", "__"))
    ]
    script = (
        "import importlib, json, sys\n"
        f"for module in {light!r}: importlib.import_module(f'moldau.{{module}}')\n"
        f"print(json.dumps([name for name in {list(HEAVY_LIBRARIES)!r} if name in sys.modules]))"
    )
    # A process of its own: this one has long since loaded everything.
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == []


# ------------------------------------------------------------------------------------- the rules, by example

BREAKS_A_RULE = {
    "a lower package importing a higher one": ("wire.types", "from moldau.log import segment"),
    "the same through the top package": ("wire.types", "from moldau import log"),
    "the same with a plain import": ("wire.types", "import moldau.log.segment"),
    "the same with a relative import": ("wire.types", "from ..log import segment"),
    "the same inside a function": ("wire.types", "def f():\n    import moldau.node"),
    "the same for type checkers only": ("raft.quorum", "if TYPE_CHECKING:\n    from moldau.log import log"),
    "a whole package where one module is allowed": ("replica.leader", "import moldau.metadata"),
    "a sibling of the one module that is allowed": ("log.segment", "from moldau.world import real"),
    "a sibling whose name only begins the same": ("log.segment", "from moldau.world import ports_real"),
    "an app importing the broker": ("console.http", "from moldau.node import node"),
    "a pure part of an app importing the rest of it": (
        "registry.compat.avro",
        "from moldau.registry import store",
    ),
    "the top package importing what every process would then load": (
        "__init__",
        "from moldau.client import connect",
    ),
    "a clock": ("raft.quorum", "import time"),
    "a clock, from": ("raft.quorum", "from datetime import datetime"),
    "a clock, renamed, in a function": ("raft.quorum", "def f():\n    import time as t"),
    "a submodule of the machine": ("log.segment", "import os.path"),
    "randomness": ("coordinator.group.classic", "from random import choice"),
    "an event loop": ("wire.framing", "import asyncio"),
    "a thread": ("replica.leader", "from threading import Lock"),
    "a path": ("log.recovery", "from pathlib import Path"),
    "a file": ("log.recovery", "with open('x') as f: pass"),
    "a coroutine in a core": ("metadata.image", "async def f(): pass"),
    "a for loop over a set display": ("model.ids", "for x in {1, 2}: pass"),
    "a for loop over set()": ("model.ids", "for x in set(xs): pass"),
    "a list of a frozenset": ("model.ids", "list(frozenset(xs))"),
    "a list comprehension over a union": ("model.ids", "[x for x in set(a) | b]"),
    "a dict comprehension over a set": ("model.ids", "{x: 1 for x in {1, 2}}"),
    "an iteration over the keys two dicts share": ("model.ids", "for x in a.keys() & b.keys(): pass"),
    "an iteration over a name bound to a set": (
        "model.ids",
        "def f(a):\n    b = set(a)\n    return [x for x in b]",
    ),
    "an iteration over an argument that is a set": ("model.ids", "def f(a: set[int]):\n    for x in a: pass"),
    "an iteration over a field that is a set": (
        "model.ids",
        "class C:\n    votes: frozenset[int]\n    def f(self):\n        return tuple(self.votes)",
    ),
    "an iteration over an enclosing function's set": (
        "model.ids",
        "def f():\n    a = {1}\n    def g():\n        for x in a: pass",
    ),
    "a set unpacked into arguments": ("model.ids", "f(*{1, 2})"),
    "a set unpacked into names": ("model.ids", "a, b = {1, 2}"),
    "the text of a set joined": ("model.ids", "','.join({'a', 'b'})"),
    "whichever element a set gives up": ("model.ids", "def f(a: set[int]):\n    a.pop()"),
    "pyarrow outside columns": ("wire.records.batch", "import pyarrow as pa"),
    "numpy outside the twin and columns": ("log.index", "def f():\n    import numpy"),
    "Spark in the broker": ("node.node", "from pyspark.sql import SparkSession"),
    "rich outside the command line": ("client.admin", "from rich.table import Table"),
    "print": ("node.node", "print('hello')"),
    "Any": ("client.admin", "from typing import Any"),
    "typing.Any": ("client.admin", "import typing\nx: typing.Any"),
}

KEEPS_THE_RULES = {
    "a higher package importing a lower one": ("log.segment", "from moldau.wire.records import header"),
    "a module of the same package": ("log.segment", "from moldau.log import index\nfrom . import epochs"),
    "the one module of a package that is allowed": ("log.log", "from moldau.world.ports import Disk"),
    "the same, as a name": ("replica.leader", "from moldau.metadata import image"),
    "the broker importing every core": ("node.node", "from moldau.raft.quorum import Quorum"),
    "an app importing its own pure part": ("registry.store", "from moldau.registry.compat import avro"),
    "the command line importing anything": ("cli.topic", "from moldau.sim import cluster\nimport time"),
    "the version": ("client.connection", "from moldau import __version__"),
    "the machine in an impure package": ("world.real", "import asyncio, os, time\nopen('x')"),
    "a name that only resembles a module": ("raft.quorum", "from moldau.raft import time"),
    "a method named open": ("log.log", "disk.open('x')"),
    "a sorted set": ("model.ids", "for x in sorted({1, 2}): pass"),
    "a sorted part of a set": ("model.ids", "sorted(x for x in {1, 2} if x > 1)"),
    "a question about a set": ("model.ids", "any(x > 1 for x in {1, 2})"),
    "a set made of a set": ("model.ids", "{x + 1 for x in {1, 2}}\n{*set(a), 3}"),
    "membership": ("model.ids", "x in {1, 2}"),
    "the only element of a set": ("model.ids", "(x,) = {1}"),
    "a dict, which keeps its order": ("model.ids", "for x in {1: 2}: pass\nfor x in d.keys(): pass"),
    "a list popped": ("model.ids", "def f(a: list[int]):\n    a.pop()"),
    "an inner argument hiding an outer set": (
        "model.ids",
        "def f(a: set[int]):\n    def g(a: list[int]):\n        for x in a: pass",
    ),
    "a set walked in an impure package": ("node.node", "for x in {1, 2}: pass"),
    "pyarrow in columns": ("wire.records.columns", "import pyarrow"),
    "print on the command line": ("cli.topic", "print('hello')"),
    "Any in the compiler": ("wire.compiler", "from typing import Any"),
}


@pytest.mark.parametrize("what", BREAKS_A_RULE)
def test_the_checker_rejects(what: str) -> None:
    module, source = BREAKS_A_RULE[what]
    assert len(violations(module, source)) == 1


@pytest.mark.parametrize("what", KEEPS_THE_RULES)
def test_the_checker_accepts(what: str) -> None:
    module, source = KEEPS_THE_RULES[what]
    assert violations(module, source) == []


def test_a_relative_import_in_a_package_starts_at_the_package_itself() -> None:
    assert violations("wire", "from .log import x", is_package=True) == []
    assert violations("wire.types", "from .log import x") == []
    assert violations("wire", "from ..log import x", is_package=True) != []


# --------------------------------------------------------------------------------------------- the checker

Finding = tuple[int, str]


def violations(module: str, source: str, *, is_package: bool = False) -> list[str]:
    """What a module does against the rules, as lines for the reader of a failed test."""
    tree = ast.parse(source)
    imports = list(absolute_imports(tree, module, is_package=is_package))
    findings = [
        *misplaced_imports(module, imports),
        *misplaced_names(module, tree, imports),
        *(impurities(tree, imports) if row_of(module).is_pure else ()),
    ]
    return [f"{module}:{line}: {what}" for line, what in sorted(findings)]


def row_of(module: str) -> Package:
    """The most specific row of the table that covers the module."""
    if module in TOP_LEVEL:
        return TOP_LEVEL[module]
    rows = [package for package in PACKAGES if is_within(module, (package.name,))]
    assert rows, f"{module} is in no package of the table"
    return max(rows, key=lambda package: len(package.name))


def is_within(name: str, prefixes: Iterable[str]) -> bool:
    """Whether a dotted name is one of the prefixes or lies below one."""
    return any(name == prefix or name.startswith(prefix + ".") for prefix in prefixes)


def absolute_imports(tree: ast.AST, module: str, *, is_package: bool) -> Iterator[Finding]:
    """Every imported name in full, wherever the import stands; `from a import b` is `a.b`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                here = ["moldau", *module.split(".")]
                here = here[: len(here) - node.level + is_package]
                base = ".".join([*here, base] if base else here)
            yield from ((node.lineno, f"{base}.{alias.name}") for alias in node.names)


def misplaced_imports(module: str, imports: Iterable[Finding]) -> Iterator[Finding]:
    """Imports against the table, and heavy libraries outside the modules that exist for them."""
    row = row_of(module)
    for line, name in imports:
        top, _, rest = name.partition(".")
        if top == "moldau":
            is_allowed = row.may_import == ANYTHING or is_within(rest, (row.name, *row.may_import))
            if rest not in ("", "__version__") and not is_allowed:
                yield line, f"{row.name} may not import {rest}"
        elif top in HEAVY_LIBRARIES and not is_within(module, HEAVY_LIBRARIES[top]):
            yield line, f"{top} is imported only in {', '.join(HEAVY_LIBRARIES[top])}"


def misplaced_names(module: str, tree: ast.AST, imports: Iterable[Finding]) -> Iterator[Finding]:
    """`print` outside the command line, `Any` outside the compiler."""
    if not is_within(module, MAY_PRINT):
        yield from ((line, "print") for line, name in builtin_calls(tree) if name == "print")
    if not is_within(module, MAY_USE_ANY):
        yield from ((line, "Any") for line, name in imports if name == "typing.Any")
        for node in ast.walk(tree):
            match node:
                case ast.Attribute(value=ast.Name(id="typing"), attr="Any"):
                    yield node.lineno, "Any"


def impurities(tree: ast.AST, imports: Iterable[Finding]) -> Iterator[Finding]:
    """Whatever would make a core depend on more than its arguments."""
    for line, name in imports:
        if name.partition(".")[0] in IMPURE_MODULES:
            yield line, f"a pure module imports {name}"
    for line, name in builtin_calls(tree):
        if name in IMPURE_CALLS:
            yield line, f"a pure module calls {name}()"
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFunctionDef):
            yield node.lineno, f"{node.name} is a coroutine in a pure module"
    yield from set_walks(tree)


def builtin_calls(tree: ast.AST) -> Iterator[Finding]:
    """Calls of a plain name."""
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=name)):
                yield node.lineno, name


# Sets are walked in hash order, which differs between processes. What follows knows a set by its syntax, by
# an annotation or by what a local name is bound to; equal digests under two hash seeds show the rest.

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


@dataclass(frozen=True, slots=True)
class KnownSets:
    """The names and fields that are known to hold sets at some place in a module."""

    names: frozenset[str]
    fields: frozenset[str]

    def has(self, node: ast.expr) -> bool:
        """Whether an expression is known to be a set."""
        match node:
            case ast.Set() | ast.SetComp() | ast.Call(func=ast.Name(id="set" | "frozenset")):
                return True
            case ast.Name(id=name):
                return name in self.names
            case ast.Attribute(attr=name):
                return name in self.fields
            case ast.BinOp(left=left, op=ast.BitAnd() | ast.BitOr() | ast.Sub() | ast.BitXor(), right=right):
                return any(self.has(side) or is_keys_view(side) for side in (left, right))
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in SET_METHODS:
                return self.has(value)
        return False


def set_walks(tree: ast.AST) -> Iterator[Finding]:
    """Places where the order of a set reaches the program."""
    fields = (name for node in ast.walk(tree) for name in annotated_fields(node))
    yield from walks_in_scope(tree, KnownSets(names=frozenset(), fields=frozenset(fields)))


def walks_in_scope(scope: ast.AST, outer: KnownSets) -> Iterator[Finding]:
    """The same for one function, or for what stands outside of all."""
    nodes = list(own_nodes(scope))
    sets = KnownSets(names=names_of_sets(scope, nodes, outer), fields=outer.fields)
    order_free = {id(argument) for node in nodes for argument in arguments_of(node, ORDER_FREE)}
    for node in nodes:
        walked: list[ast.expr] = []
        match node:
            case ast.For(iter=iterable) | ast.YieldFrom(value=iterable):
                walked = [iterable]
            case ast.ListComp() | ast.GeneratorExp() | ast.DictComp() if id(node) not in order_free:
                walked = [generator.iter for generator in node.generators]
            case ast.List(elts=elements) | ast.Tuple(elts=elements) | ast.Call(args=elements) if any(
                isinstance(element, ast.Starred) for element in elements
            ):
                walked = [element.value for element in elements if isinstance(element, ast.Starred)]
            case ast.Assign(targets=[ast.Tuple(elts=[_, _, *_])], value=value):
                walked = [value]
            case ast.Call(func=ast.Attribute(value=value, attr="pop"), args=[]):
                walked = [value]
            case ast.Call():
                walked = list(arguments_of(node, ORDER_BOUND))
        for expression in walked:
            if sets.has(expression):
                yield expression.lineno, f"the order of a set: {ast.unparse(node).splitlines()[0]}"
        if isinstance(node, Function):
            yield from walks_in_scope(node, sets)


def own_nodes(scope: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a scope, down to nested functions but not into them."""
    for child in ast.iter_child_nodes(scope):
        yield child
        if not isinstance(child, Function):
            yield from own_nodes(child)


def names_of_sets(scope: ast.AST, nodes: Iterable[ast.AST], outer: KnownSets) -> frozenset[str]:
    """The names that hold sets in a scope: inherited, annotated, or bound to sets and to nothing else."""
    bound: dict[str, list[bool]] = {}
    if isinstance(scope, Function):
        arguments = scope.args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            bound.setdefault(argument.arg, []).append(is_set_annotation(argument.annotation))
    for node in nodes:
        match node:
            case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                bound.setdefault(name, []).append(is_set_annotation(annotation))
            case ast.Assign(targets=targets, value=value):
                for target in targets:
                    if isinstance(target, ast.Name):
                        bound.setdefault(target.id, []).append(outer.has(value))
    return outer.names - bound.keys() | {name for name, kinds in bound.items() if all(kinds)}


def annotated_fields(node: ast.AST) -> Iterator[str]:
    """The fields that a class body, or an assignment to an attribute, declares to be sets."""
    match node:
        case ast.ClassDef(body=body):
            for statement in body:
                match statement:
                    case ast.AnnAssign(target=ast.Name(id=name), annotation=annotation):
                        if is_set_annotation(annotation):
                            yield name
        case ast.AnnAssign(target=ast.Attribute(attr=name), annotation=annotation):
            if is_set_annotation(annotation):
                yield name


def is_set_annotation(annotation: ast.expr | None) -> bool:
    """`set`, `frozenset[int]`, `AbstractSet[str]`."""
    match annotation:
        case ast.Subscript(value=value):
            return is_set_annotation(value)
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in ("set", "frozenset", "AbstractSet", "MutableSet")
    return False


def is_keys_view(node: ast.expr) -> bool:
    """`d.keys()`, which is ordered until an operator makes a set of it."""
    match node:
        case ast.Call(func=ast.Attribute(attr="keys"), args=[]):
            return True
    return False


def arguments_of(node: ast.AST, functions: frozenset[str]) -> Iterator[ast.expr]:
    """The arguments of a call to one of the named functions or methods."""
    match node:
        case ast.Call(func=ast.Name(id=name) | ast.Attribute(attr=name), args=arguments) if name in functions:
            yield from arguments
