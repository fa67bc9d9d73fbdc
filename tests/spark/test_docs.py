"""docs/spark.md says what the code does."""

import re
from pathlib import Path

from moldau.spark.columns import source_schema
from moldau.spark.options import OPTIONS, REFUSED_SETTINGS

PAGE = (Path(__file__).parents[2] / "docs" / "spark.md").read_text()


def test_the_table_of_options_is_the_one_in_the_code() -> None:
    rows = ["| option | values | default | for | |", "|---|---|---|---|---|"]
    for option in OPTIONS:
        uses = ", ".join(use.value for use in option.uses)
        rows.append(f"| `{option.name}` | {option.value} | {option.default} | {uses} | {option.doc} |")
    table = "\n".join(rows)
    assert table in PAGE, f"put this into docs/spark.md:\n\n{table}"


def test_every_column_is_told() -> None:
    columns = re.findall(r"^\| `(\w+)` \| (\w+)", PAGE.partition("## Reading a batch")[0], re.MULTILINE)
    known = [(field.name, field.dataType.simpleString()) for field in source_schema(with_headers=True)]
    assert columns == [(name, {"bigint": "long"}.get(kind, kind).partition("<")[0]) for name, kind in known]


def test_what_the_page_says_to_be_refused_is_refused() -> None:
    table = PAGE.partition("why it is refused")[2].partition("\n\n")[0]
    said = re.findall(r"`kafka\.([a-z.]+)`", table)
    assert said
    assert set(said) <= REFUSED_SETTINGS.keys()


def test_what_is_copied_first_works_where_no_environment_is_activated() -> None:
    first = PAGE.partition("```python\n")[2].partition("```")[0]
    named, made = first.find('os.environ["PYSPARK_PYTHON"] = sys.executable'), first.find("getOrCreate")
    assert 0 <= named < made


def test_the_python_on_the_page_compiles() -> None:
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
    assert len(blocks) >= 3
    for block in blocks:
        compile(block, "docs/spark.md", "exec")
