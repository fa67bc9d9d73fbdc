"""Which pipeline a path names: a function in a Python file, or a graph of Spark's declarative pipelines."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from enum import Enum
from pathlib import Path
from typing import Final

FUNCTION_NAME: Final = "pipeline"
FUNCTION_FILE: Final = "pipeline.py"
SPEC_NAMES: Final = ("spark-pipeline.yml", "spark-pipeline.yaml")
NAME_PATTERN: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")

_SPEC_FIELDS: Final = ("name", "storage", "catalog", "database", "schema", "configuration", "libraries")
_TABLES: Final = re.compile(r"\b(toTable|saveAsTable|insertInto|writeTo|CREATE\s+TABLE)\b", re.IGNORECASE)
_DECLARATIVE_MODULE: Final = "pyspark.pipelines"


class Kind(Enum):
    """How a pipeline is written."""

    FUNCTION = "function"
    DECLARATIVE = "declarative"


class InvalidProject(Exception):
    """A path names no pipeline that could be run; the text says why, in which line, and what to do."""


class NoSuchProject(InvalidProject):
    """There is nothing where the path leads."""


@dataclass(frozen=True, slots=True)
class Project:
    """A pipeline before it runs: its name, and where what it is made of can be found."""

    name: str
    kind: Kind
    # What paths in it are relative to, and where its own directory is made.
    root: Path
    # A function's file, or the patterns under the root that name the files of a graph.
    file: Path | None = None
    function: str = FUNCTION_NAME
    patterns: tuple[str, ...] = ()
    storage: str | None = None
    catalog: str | None = None
    database: str | None = None
    configuration: Mapping[str, str] = field(default_factory=dict)

    @property
    def source(self) -> str:
        """What names it on the command line."""
        if self.kind is Kind.DECLARATIVE:
            return str(self.file or self.root)
        suffix = "" if self.function == FUNCTION_NAME else f":{self.function}"
        return f"{self.file}{suffix}"

    @property
    def has_tables(self) -> bool:
        """Whether it writes tables that a catalog must remember from run to run."""
        if self.kind is Kind.DECLARATIVE:
            return True
        assert self.file is not None, "a function is in a file"
        return bool(_TABLES.search(self.file.read_text(errors="replace")))

    def files(self) -> list[Path]:
        """The files it is made of, sorted."""
        if self.file is not None and not self.patterns:
            return [self.file]
        found = {path for pattern in self.patterns for path in self.root.glob(_with_files(pattern))}
        return sorted(path for path in found if path.is_file() and "__pycache__" not in path.parts)


def find_project(where: str, *, name: str | None = None) -> Project:
    """The pipeline that `where` names: a directory, a .py, .sql or .yml file, or `file.py:function`."""
    path, function = _split_function(where)
    if not path.exists():
        raise NoSuchProject(_nothing_there(path))
    path = path.resolve()
    if path.is_dir():
        project = _of_directory(path)
    elif path.suffix == ".py":
        project = _of_python(path, function, name=path.stem)
    elif path.suffix == ".sql":
        project = Project(path.stem, Kind.DECLARATIVE, path.parent, file=path, patterns=(path.name,))
    elif path.suffix in (".yml", ".yaml"):
        project = _of_spec(path)
    else:
        raise InvalidProject(f"{where} is no pipeline: it must be a directory, or a .py, .sql or .yml file.")
    if function is not None and project.kind is not Kind.FUNCTION:
        raise InvalidProject(f"{path.name} is a declarative pipeline, which has no function {function!r}.")
    if name is not None:
        project = _renamed(project, name)
    check_name(project.name)
    return project


def check_name(name: str) -> str:
    """The name itself; InvalidProject if no directory could be called so."""
    if not NAME_PATTERN.fullmatch(name):
        raise InvalidProject(
            f"{name!r} cannot be the name of a pipeline: it may have letters, digits, '.', '_' and '-', and"
            " begins with a letter or a digit. Give another with --name."
        )
    return name


# ---------------------------------------------------------------- what a path may be


def _split_function(where: str) -> tuple[Path, str | None]:
    path, colon, function = where.rpartition(":")
    if colon and path.endswith(".py") and function.isidentifier():
        return Path(path), function
    return Path(where), None


def _of_directory(path: Path) -> Project:
    specs = [path / name for name in SPEC_NAMES if (path / name).is_file()]
    if len(specs) > 1:
        raise InvalidProject(f"{path} has both {' and '.join(SPEC_NAMES)}: remove one.")
    if specs:
        return _of_spec(specs[0])
    if (path / FUNCTION_FILE).is_file():
        return _of_python(path / FUNCTION_FILE, None, name=path.name)
    raise InvalidProject(
        f"{path} has neither {FUNCTION_FILE} nor {SPEC_NAMES[0]}: name the file of the pipeline, or let"
        " 'moldau pipeline init' write one."
    )


def _of_python(path: Path, function: str | None, *, name: str) -> Project:
    tree = parse_python(path)
    wanted = function or FUNCTION_NAME
    functions = [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]
    if wanted in functions:
        (definition,) = [
            node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == wanted
        ][-1:]
        _check_arguments(path, definition)
        return Project(name, Kind.FUNCTION, path.parent, file=path, function=wanted)
    if function is not None:
        near = get_close_matches(function, functions, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        raise InvalidProject(f"{path.name} has no function {function!r}.{hint}")
    if _imports_declarative(tree):
        return Project(name, Kind.DECLARATIVE, path.parent, file=path, patterns=(path.name,))
    hint = f" To run another function: {path.name}:{functions[0]}." if functions else ""
    raise InvalidProject(
        f"{path.name} is no pipeline: it has no function {FUNCTION_NAME}(spark), and it does not import"
        f" {_DECLARATIVE_MODULE}.{hint}"
    )


def parse_python(path: Path) -> ast.Module:
    """A Python file as a tree; InvalidProject names the line that is no Python."""
    try:
        return ast.parse(path.read_bytes(), filename=str(path))
    except SyntaxError as error:
        line = (error.text or "").strip()
        shown = f": {line}" if line else ""
        raise InvalidProject(
            f"{path.name}, line {error.lineno}: this is no Python, {error.msg}{shown}"
        ) from None


def _check_arguments(path: Path, definition: ast.FunctionDef) -> None:
    arguments = definition.args
    required = len(arguments.posonlyargs) + len(arguments.args) - len(arguments.defaults)
    takes_one = bool(arguments.posonlyargs or arguments.args or arguments.vararg)
    needs_more = required > 1 or any(default is None for default in arguments.kw_defaults)
    if not takes_one or needs_more:
        raise InvalidProject(
            f"{path.name}, line {definition.lineno}: the function {definition.name!r} must take one argument,"
            " the Spark session."
        )


def _imports_declarative(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, names=names):
                if f"{module}.".startswith(f"{_DECLARATIVE_MODULE}."):
                    return True
                if module == "pyspark" and any(alias.name == "pipelines" for alias in names):
                    return True
            case ast.Import(names=names):
                if any(f"{alias.name}.".startswith(f"{_DECLARATIVE_MODULE}.") for alias in names):
                    return True
    return False


# ---------------------------------------------------------------- specs, which are Spark's own


def _of_spec(path: Path) -> Project:
    try:
        import yaml
    except ImportError:
        raise InvalidProject(
            f"To read {path.name} the package pyyaml is needed: pip install 'moldau[spark]'"
        ) from None
    try:
        given = yaml.safe_load(path.read_text())
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise InvalidProject(f"{path.name} is no YAML: {' '.join(str(error).split())}") from None
    return project_of_spec(given if given is not None else {}, path)


def project_of_spec(given: object, path: Path) -> Project:
    """What the parsed YAML at `path` says; the fields are Spark's, `name` and `storage` may be left out."""
    if not isinstance(given, dict):
        raise InvalidProject(f"{path.name} must have fields such as `name:` and `libraries:`.")
    for key in given:
        if key not in _SPEC_FIELDS:
            near = get_close_matches(str(key), _SPEC_FIELDS, n=1)
            hint = f"Did you mean {near[0]!r}?" if near else f"There are {', '.join(_SPEC_FIELDS)}."
            raise InvalidProject(f"{path.name} has a field {key!r}, which there is not. {hint}")

    def text(key: str) -> str | None:
        value = given.get(key)
        if value is not None and not isinstance(value, str):
            raise InvalidProject(f"{path.name}: the field {key!r} must be a text, and is {value!r}.")
        return value

    patterns = tuple(_patterns(given.get("libraries", []), path))
    if not patterns:
        raise InvalidProject(f"{path.name} names no files of a pipeline: add them under 'libraries:'.")
    project = Project(
        text("name") or path.parent.name,
        Kind.DECLARATIVE,
        path.parent,
        patterns=patterns,
        storage=text("storage"),
        catalog=text("catalog"),
        database=text("database") or text("schema"),
        configuration=_configuration(given.get("configuration"), path),
    )
    if not project.files():
        raise InvalidProject(f"{path.name}: no file matches {' or '.join(patterns)}.")
    return project


def _patterns(libraries: object, path: Path) -> list[str]:
    patterns = []
    for entry in libraries if isinstance(libraries, list) else [libraries]:
        match entry:
            case {"glob": {"include": str(pattern)}}:
                patterns.append(pattern)
            case _:
                form = "- glob: {include: PATTERN}"
                raise InvalidProject(f"{path.name}: an entry under 'libraries:' is not '{form}': {entry!r}")
    return patterns


def _configuration(given: object, path: Path) -> dict[str, str]:
    if given is None:
        return {}
    if not isinstance(given, dict):
        raise InvalidProject(
            f"{path.name}: 'configuration:' must have a line 'name: value' for each setting."
        )
    for name, value in given.items():
        if not isinstance(value, str):
            raise InvalidProject(
                f"{path.name}: the value of {name} must be a text, in quotes: {str(value).lower()!r}"
            )
    return {str(name): value for name, value in given.items()}


def _with_files(pattern: str) -> str:
    return f"{pattern}/*" if pattern.endswith("**") else pattern


def _renamed(project: Project, name: str) -> Project:
    from dataclasses import replace

    return replace(project, name=name)


def _nothing_there(path: Path) -> str:
    siblings = sorted(each.name for each in path.parent.iterdir()) if path.parent.is_dir() else []
    near = get_close_matches(path.name, siblings, n=1)
    hint = f"Did you mean {path.parent / near[0]}?" if near else "'moldau pipeline init NAME' writes one."
    return f"There is no {path}. {hint}"
