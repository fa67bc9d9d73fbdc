"""Files of the disk while clients hold all descriptors that there are."""

import resource
import subprocess
import sys
from pathlib import Path

# In a process of its own, because it takes all descriptors.
PROGRAM = """
import asyncio, os, resource, sys
from moldau.world.ports import Flush
from moldau.world.real.disk import RealDisk
from moldau.world.real.spares import SPARES

disk = RealDisk(sys.argv[1])
clients = []
try:
    while True:
        clients.append(os.open(os.devnull, os.O_RDONLY))
except OSError as error:
    assert error.errno == 24, error

file = disk.open("a", create=True)
file.append([b"kept"])
for _ in range(3 * SPARES):
    # More often than there are spares: what a flush opens, it gives back.
    disk.flush_blocking(Flush(files=(file,), directories=("",)))
opened = [file]
try:
    while True:
        opened.append(disk.open("a"))
except OSError as error:
    print(len(opened), error.errno)
for fd in clients:
    os.close(fd)
disk.flush_blocking(Flush(files=(file,), directories=("",)))
while True:
    try:
        clients.append(os.dup(0))
    except OSError:
        break
print(disk.open("a").read(0, 10).decode())
"""
EMFILE = 24


def test_files_are_opened_while_clients_hold_all_there_are(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100)),
    )
    assert done.returncode == 0, done.stderr
    spent, refilled = done.stdout.splitlines()
    assert spent == f"16 {EMFILE}"
    assert refilled == "kept"
