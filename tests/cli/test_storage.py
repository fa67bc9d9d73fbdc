"""`moldau storage` on real files."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from moldau.cli import main
from moldau.model.ids import NodeId, uuid_from_text
from moldau.node.quorum_files import read_snapshot
from moldau.node.quorum_log import PATH
from moldau.raft.voters import VoterSet

ONE, TWO = "JEXY6aqzQY-32P5TStzaFg", "MvDxzVmcRsaTz33bUuRU6A"
CLUSTER = "2R5ePzDyTw2zrZk5bWWzbg"


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "server.properties"
    path.write_text(
        f"""
        process.roles=broker,controller
        node.id=1
        listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093
        controller.listener.names=CONTROLLER
        controller.quorum.bootstrap.servers=localhost:9093
        log.dirs={tmp_path / "data"}
        """
    )
    return path


def storage(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["storage", *map(str, arguments)])


def format_(settings: Path, *arguments: object) -> Result:
    return storage("format", "-c", settings, "-t", CLUSTER, *arguments)


def complaint(result: Result) -> str:
    """The one line with which a command failed."""
    assert result.exit_code == 1, result.output
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    return line


def identity(tmp_path: Path) -> dict[str, str]:
    lines = (tmp_path / "data" / "meta.properties").read_text().splitlines()
    return dict(line.split("=", 1) for line in lines)


def voters(tmp_path: Path) -> VoterSet:
    data = tmp_path / "data" / PATH / "00000000000000000000-0000000000.checkpoint"
    return read_snapshot(data.read_bytes()).voters


def test_a_random_id_can_be_used() -> None:
    first, second = (storage("random-uuid").stdout.strip() for _ in range(2))
    assert uuid_from_text(first) != uuid_from_text(second)


def test_a_node_alone_is_formatted_and_looked_at(settings: Path, tmp_path: Path) -> None:
    result = format_(settings, "--standalone")
    assert result.exit_code == 0, result.output
    assert result.stdout == f"{tmp_path / 'data'} is formatted: node 1 of cluster {CLUSTER}.\n"
    assert (tmp_path / "data" / "bootstrap.checkpoint").exists()
    directory_id = identity(tmp_path)["directory.id"]
    assert [voter.key.directory_id for voter in voters(tmp_path).voters] == [uuid_from_text(directory_id)]

    info = storage("info", "-c", settings, "-o", "json")
    assert info.exit_code == 0
    assert json.loads(info.stdout) == {
        "directory": str(tmp_path / "data"),
        "cluster_id": CLUSTER,
        "node_id": 1,
        "directory_id": directory_id,
        "problems": [],
    }
    assert "problems      none" in storage("info", "-c", settings).stdout


def test_formatting_twice_needs_a_word(settings: Path) -> None:
    format_(settings, "-s")
    assert "is already formatted; --ignore-formatted leaves it so." in complaint(format_(settings, "-s"))
    again = format_(settings, "-s", "--ignore-formatted")
    assert again.exit_code == 0
    assert "was formatted already" in again.stdout


def test_several_controllers_have_the_directories_that_were_given(settings: Path, tmp_path: Path) -> None:
    result = format_(settings, "-I", f"1@a:9093:{ONE},2@b:9093:{TWO}")
    assert result.exit_code == 0, result.output
    assert identity(tmp_path)["directory.id"] == ONE
    assert [voter.key.node_id for voter in voters(tmp_path).voters] == [1, 2]
    assert "must be ID@HOST:PORT:DIRECTORY-ID" in complaint(format_(settings, "-I", "1@a:9093"))


def test_a_controller_that_joins_later_begins_no_quorum(settings: Path, tmp_path: Path) -> None:
    assert format_(settings, "--no-initial-controllers").exit_code == 0
    assert not (tmp_path / "data" / PATH).exists()


def test_the_only_static_voter_is_alone(settings: Path, tmp_path: Path) -> None:
    with settings.open("a") as file:
        file.write("\ncontroller.quorum.voters=1@localhost:9093\n")
    assert format_(settings).exit_code == 0
    assert voters(tmp_path).find(NodeId(1)) is not None


@pytest.mark.parametrize("option", [[], ["--standalone"]])
def test_several_static_voters_are_asked_for_their_directories(settings: Path, option: list[str]) -> None:
    with settings.open("a") as file:
        file.write("\ncontroller.quorum.voters=1@localhost:9093,2@b:9093\n")
    message = complaint(format_(settings, *option))
    assert "names other nodes (2)" in message
    assert "--initial-controllers id@host:port:directory-id" in message


def test_a_controller_without_a_quorum_is_asked_for_it(settings: Path) -> None:
    assert "A controller must know its quorum" in complaint(format_(settings))
    both = format_(settings, "--standalone", "--no-initial-controllers")
    assert both.exit_code == 2
    assert "Give only one of" in both.stderr


def test_a_feature_has_a_level(settings: Path) -> None:
    wrong = format_(settings, "-s", "--feature", "group.version")
    assert wrong.exit_code == 2
    assert "must be NAME=LEVEL" in wrong.stderr
    assert "There is no feature 'x'" in complaint(format_(settings, "-s", "-f", "x=1"))
    assert format_(settings, "-s", "-f", "group.version=1").exit_code == 0


def test_a_mistake_in_the_file_is_one_line(settings: Path, tmp_path: Path) -> None:
    assert "No such file or directory" in complaint(format_(tmp_path / "nowhere", "-s"))
    settings.write_text("=\n")
    assert complaint(format_(settings)).endswith("server.properties, line 1: there is no name before '='.")
    settings.write_text("node.idd=1\n")
    assert "Did you mean node.id" in complaint(format_(settings))
    settings.write_bytes(b"a=\xff\n")
    assert "is not in UTF-8" in complaint(format_(settings))


def test_a_directory_that_cannot_be_is_one_line(settings: Path, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("a file")
    assert "data: File exists." in complaint(format_(settings, "-s"))


def test_problems_are_told_with_exit_code_1(settings: Path, tmp_path: Path) -> None:
    def problems() -> list[str]:
        info = storage("info", "-c", settings, "-o", "json")
        assert info.exit_code == 1
        found: list[str] = json.loads(info.stdout)["problems"]
        return found

    assert problems() == ["there is no such directory"]
    assert not (tmp_path / "data").exists()
    (tmp_path / "data").mkdir()
    assert problems() == ["the directory is not formatted"]
    format_(settings, "-s")
    settings.write_text(settings.read_text().replace("node.id=1", "node.id=2"))
    assert problems() == ["node.id is 2 in the settings"]
    (tmp_path / "data" / "meta.properties").write_text("version=9\n")
    assert problems()[0].endswith("version 9 is not known")


READ_BY_KAFKA = """
import java.util.*;
import org.apache.kafka.metadata.bootstrap.*;
import org.apache.kafka.metadata.properties.*;

public class Main {
    public static void main(String[] args) throws Exception {
        MetaPropertiesEnsemble ensemble =
            new MetaPropertiesEnsemble.Loader().addMetadataLogDir(args[0]).load();
        ensemble.verify(Optional.empty(), OptionalInt.of(1),
            EnumSet.of(MetaPropertiesEnsemble.VerificationFlag.REQUIRE_METADATA_LOG_DIR));
        System.out.println(ensemble.clusterId().get());
        BootstrapMetadata bootstrap = new BootstrapDirectory(args[0]).read();
        System.out.println(bootstrap.metadataVersion().featureLevel());
        System.out.println(bootstrap.featureLevel("transaction.version"));
    }
}
"""


def test_kafka_reads_what_we_format(settings: Path, tmp_path: Path, run_java: Callable[..., str]) -> None:
    format_(settings, "--standalone")
    assert run_java(READ_BY_KAFKA, str(tmp_path / "data")).split() == [CLUSTER, "30", "2"]
