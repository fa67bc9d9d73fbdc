"""Temporary folders, and what becomes of them when their owner is killed."""

import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from moldau.testing.folders import TemporaryFolder

OWNER = """
import signal
from moldau.testing.folders import TemporaryFolder
folder = TemporaryFolder()
(folder.path / "data").mkdir()
print(folder.path, flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other tests and other people have folders of their own."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)


def test_a_folder_is_removed_with_all_that_is_in_it() -> None:
    folder = TemporaryFolder()
    (folder.path / "inside").mkdir()
    (folder.path / "inside" / "file").write_text("x")
    folder.remove()
    assert not folder.path.exists()
    folder.remove()


def test_a_folder_whose_owner_lives_stays_and_one_whose_owner_was_killed_goes() -> None:
    with subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.PIPE, text=True) as owner:
        assert owner.stdout is not None
        theirs = Path(owner.stdout.readline().strip())
        first = TemporaryFolder()
        assert theirs.exists()
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    assert (theirs / "data").exists()
    second = TemporaryFolder()
    assert not theirs.exists()
    assert first.path.exists()
    first.remove()
    second.remove()


def test_what_only_has_such_a_name_is_not_followed(tmp_path: Path) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    os.symlink(precious, tmp_path / "moldau-cluster-link")
    (tmp_path / "moldau-cluster-file").write_text("x")
    TemporaryFolder().remove()
    assert precious.exists()
    assert (tmp_path / "moldau-cluster-file").exists()
