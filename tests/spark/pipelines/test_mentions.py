"""What can be seen of a pipeline's topics without running it."""

from pathlib import Path

import pytest

from moldau.spark.pipelines.mentions import Mentions, mentions
from moldau.spark.pipelines.projects import InvalidProject, find_project
from moldau.spark.pipelines.sql import InvalidSql
from moldau.spark.pipelines.templates import KINDS, project_files


@pytest.mark.parametrize("kind", KINDS)
def test_the_topics_of_what_init_writes_are_seen(tmp_path: Path, kind: str) -> None:
    for path, text in project_files(kind, "shop").items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    found = mentions(find_project(str(tmp_path)).files())
    assert found == Mentions(has_moldau=True, read=("clicks",), written=("click-counts",))


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ('r.format("moldau").options(subscribe="a, b").load()', Mentions(True, read=("a", "b"))),
        ('r.load(format="moldau", subscribe="a")', Mentions(True, read=("a",))),
        ('r.format("moldau").options(**{"subscribe": "a"})', Mentions(True, read=("a",))),
        ('w.format("moldau").option("topic", name)', Mentions(True)),
        ('r.format("parquet").option("path", "x")', Mentions()),
        (
            'r.format("moldau").option("kafka.bootstrap.servers", "h:1").option("subscribe", "a")',
            Mentions(True, has_servers=True, read=("a",)),
        ),
        ('dp.create_sink("s", "moldau", options={"topic": "out"})', Mentions(True, written=("out",))),
    ],
)
def test_what_is_written_out_is_seen(tmp_path: Path, code: str, expected: Mentions) -> None:
    path = tmp_path / "p.py"
    path.write_text(code)
    assert mentions([path]) == expected


def test_files_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_text("def")
    with pytest.raises(InvalidProject, match=r"a\.py, line 1"):
        mentions([tmp_path / "a.py"])
    (tmp_path / "a.sql").write_text("\nSELECT 'x")
    with pytest.raises(InvalidSql, match=r"a\.sql, line 2"):
        mentions([tmp_path / "a.sql"])
