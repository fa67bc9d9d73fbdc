"""What holds for every example, and can be seen without Spark."""

import ast
from pathlib import Path

import pytest
from spark.examples.conftest import EXAMPLES

from moldau.spark.pipelines.projects import Kind, find_project

ROOT = EXAMPLES.parents[1]


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_example_is_a_pipeline_that_is_listed_mapped_and_tested(path: Path) -> None:
    project = find_project(str(path))
    assert (project.kind, project.function, project.name) == (Kind.FUNCTION, "pipeline", path.stem)
    explanation = ast.get_docstring(ast.parse(path.read_text()))
    assert explanation is not None and "\n\n" in explanation
    assert f"[{path.name}]({path.name})" in (EXAMPLES / "README.md").read_text()
    assert f"(../examples/spark/{path.name})" in (ROOT / "docs" / "streams.md").read_text()
    tests = "".join(each.read_text() for each in Path(__file__).parent.glob("test_*.py"))
    assert f'examples.running("{path.stem}")' in tests or f'examples.run("{path.stem}")' in tests
