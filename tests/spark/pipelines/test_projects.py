"""Which pipeline a path names, and what is said when it names none."""

from pathlib import Path

import pytest

from moldau.spark.pipelines.projects import InvalidProject, Kind, NoSuchProject, find_project
from moldau.spark.pipelines.templates import KINDS, project_files

FUNCTION = "def pipeline(spark):\n    pass\n\n\ndef nightly(session):\n    pass\n"
GRAPH = "from pyspark import pipelines as dp\n\n\n@dp.table\ndef clicks():\n    pass\n"
SPEC = "name: sales\nlibraries:\n  - glob:\n      include: transformations/**\n"


def written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


# ---------------------------------------------------------------- what it may be


def test_a_file_with_the_function_is_a_pipeline_of_its_name(tmp_path: Path) -> None:
    path = written(tmp_path / "clicks.py", FUNCTION)
    project = find_project(str(path))
    assert (project.name, project.kind, project.function) == ("clicks", Kind.FUNCTION, "pipeline")
    assert (project.root, project.files(), project.source) == (tmp_path, [path], str(path))


def test_another_function_of_the_file_can_be_named(tmp_path: Path) -> None:
    path = written(tmp_path / "clicks.py", FUNCTION)
    project = find_project(f"{path}:nightly")
    assert project.function == "nightly"
    assert project.source == f"{path}:nightly"


@pytest.mark.parametrize(
    "text",
    [
        GRAPH,
        "import pyspark.pipelines as dp",
        "from pyspark.pipelines import table",
        "def outer():\n    from pyspark import sql, pipelines",
    ],
)
def test_a_file_that_imports_the_declarative_pipelines_is_a_graph(tmp_path: Path, text: str) -> None:
    project = find_project(str(written(tmp_path / "clicks.py", text)))
    assert (project.name, project.kind) == ("clicks", Kind.DECLARATIVE)
    assert project.files() == [tmp_path / "clicks.py"]


def test_a_function_goes_before_a_graph(tmp_path: Path) -> None:
    assert find_project(str(written(tmp_path / "both.py", GRAPH + FUNCTION))).kind is Kind.FUNCTION


def test_a_sql_file_is_a_graph(tmp_path: Path) -> None:
    project = find_project(str(written(tmp_path / "clicks.sql", "CREATE STREAMING TABLE t AS SELECT 1")))
    assert (project.name, project.kind, project.has_tables) == ("clicks", Kind.DECLARATIVE, True)


def test_a_directory_goes_by_its_own_name(tmp_path: Path) -> None:
    written(tmp_path / "shop" / "pipeline.py", FUNCTION)
    project = find_project(str(tmp_path / "shop"))
    assert (project.name, project.root) == ("shop", tmp_path / "shop")


def test_a_directory_with_a_spec_is_what_the_spec_says(tmp_path: Path) -> None:
    written(tmp_path / "spark-pipeline.yml", SPEC + 'configuration:\n  spark.x: "1"\nschema: marts\n')
    one = written(tmp_path / "transformations" / "deep" / "a.py", GRAPH)
    two = written(tmp_path / "transformations" / "b.sql", "")
    written(tmp_path / "transformations" / "__pycache__" / "c.py", "")
    for where in (tmp_path, tmp_path / "spark-pipeline.yml"):
        project = find_project(str(where))
        assert (project.name, project.kind, project.database) == ("sales", Kind.DECLARATIVE, "marts")
        assert project.files() == [two, one]
        assert project.configuration == {"spark.x": "1"}


def test_the_name_can_be_chosen(tmp_path: Path) -> None:
    path = written(tmp_path / "clicks.py", FUNCTION)
    assert find_project(str(path), name="hourly").name == "hourly"
    with pytest.raises(InvalidProject, match="cannot be the name"):
        find_project(str(path), name="../x")


@pytest.mark.parametrize(
    ("code", "has_tables"),
    [
        ("    df.writeStream.toTable('t')", True),
        ("    df.write.saveAsTable('t')", True),
        ("    df.writeStream.format('parquet').start()", False),
    ],
)
def test_a_function_that_writes_tables_needs_a_catalog_that_lasts(
    tmp_path: Path, code: str, has_tables: bool
) -> None:
    path = written(tmp_path / "p.py", f"def pipeline(spark):\n{code}\n")
    assert find_project(str(path)).has_tables is has_tables


@pytest.mark.parametrize("kind", KINDS)
def test_what_init_writes_is_a_pipeline(tmp_path: Path, kind: str) -> None:
    for path, text in project_files(kind, "shop").items():
        written(tmp_path / "shop" / path, text)
    project = find_project(str(tmp_path / "shop"))
    assert project.name == "shop"
    assert project.kind is (Kind.FUNCTION if kind == "function" else Kind.DECLARATIVE)
    assert project.files()


# ---------------------------------------------------------------- what is wrong with it


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "def pipeline(spark):\nreturn 1",
            "clicks.py, line 2: this is no Python, expected an indented block",
        ),
        ("def run(spark): pass", "it has no function pipeline(spark), and it does not import"),
        ("def run(spark): pass", "To run another function: clicks.py:run."),
        ("def pipeline(): pass", "line 1: the function 'pipeline' must take one argument, the Spark session"),
        ("def pipeline(spark, more): pass", "must take one argument"),
        ("def pipeline(spark, *, more): pass", "must take one argument"),
    ],
)
def test_a_file_that_is_no_pipeline_says_why(tmp_path: Path, text: str, reason: str) -> None:
    path = written(tmp_path / "clicks.py", text)
    with pytest.raises(InvalidProject) as error:
        find_project(str(path))
    assert reason in str(error.value)


@pytest.mark.parametrize("text", ["def pipeline(spark, more=1): pass", "def pipeline(*args, **kwargs): pass"])
def test_a_function_may_take_more_than_it_is_given(tmp_path: Path, text: str) -> None:
    assert find_project(str(written(tmp_path / "clicks.py", text))).kind is Kind.FUNCTION


def test_a_function_that_is_not_there_is_not_guessed(tmp_path: Path) -> None:
    path = written(tmp_path / "clicks.py", FUNCTION)
    with pytest.raises(InvalidProject, match=r"no function 'nightli'\. Did you mean 'nightly'\?"):
        find_project(f"{path}:nightli")
    graph = written(tmp_path / "graph.sql", "")
    with pytest.raises(NoSuchProject):
        find_project(f"{graph}:nightly")


def test_a_path_that_leads_nowhere_says_what_is_near(tmp_path: Path) -> None:
    written(tmp_path / "clicks.py", FUNCTION)
    with pytest.raises(NoSuchProject, match=r"Did you mean .*clicks\.py\?"):
        find_project(str(tmp_path / "click.py"))
    with pytest.raises(NoSuchProject, match="'moldau pipeline init NAME' writes one"):
        find_project(str(tmp_path / "elsewhere" / "at-all"))


def test_a_directory_without_a_pipeline_says_what_is_looked_for(tmp_path: Path) -> None:
    with pytest.raises(InvalidProject, match=r"neither pipeline\.py nor spark-pipeline\.yml"):
        find_project(str(tmp_path))
    written(tmp_path / "notes.txt", "")
    with pytest.raises(InvalidProject, match="it must be a directory, or a"):
        find_project(str(tmp_path / "notes.txt"))


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ("- a list", "must have fields"),
        ("", "names no files of a pipeline"),
        ("nam: x\n" + SPEC, "has a field 'nam', which there is not. Did you mean 'name'?"),
        ("storage: 1\n" + SPEC, "the field 'storage' must be a text, and is 1"),
        ("libraries:\n  - transformations/**\n", "an entry under 'libraries:' is not"),
        (
            "configuration:\n  spark.x: true\n" + SPEC,
            "the value of spark.x must be a text, in quotes: 'true'",
        ),
        ("configuration: x\n" + SPEC, "'configuration:' must have a line"),
        ("libraries:\n  - glob:\n      include: other/**\n", "no file matches other/**"),
        ("a: b: c", "is no YAML"),
    ],
)
def test_a_spec_that_cannot_be_read_says_which_field(tmp_path: Path, spec: str, reason: str) -> None:
    written(tmp_path / "transformations" / "a.sql", "")
    written(tmp_path / "spark-pipeline.yml", spec)
    with pytest.raises(InvalidProject) as error:
        find_project(str(tmp_path))
    assert reason in str(error.value)


def test_one_directory_has_one_spec(tmp_path: Path) -> None:
    written(tmp_path / "spark-pipeline.yml", SPEC)
    written(tmp_path / "spark-pipeline.yaml", SPEC)
    with pytest.raises(InvalidProject, match="remove one"):
        find_project(str(tmp_path))
