"""The command as a process: pipes, signals, exit codes, what it loads, completion."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from cli.conftest import Cli, JsonOf
from click.testing import CliRunner
from clients.broker_process import BrokerProcess

from moldau.cli import KAFKA_TOOLS, main

# Of a line, what it may become and what bash is told to do besides.
PressTab = Callable[..., tuple[list[str], list[str]]]

MOLDAU = [sys.executable, "-m", "moldau"]


def environment(broker: BrokerProcess) -> dict[str, str]:
    return {**os.environ, "MOLDAU_BOOTSTRAP_SERVER": broker.address}


# Under nohup, say, SIGHUP is ignored, and by all that is started there.
HEEDING = (
    "import signal; signal.signal(signal.SIGHUP, signal.SIG_DFL)\nfrom moldau.__main__ import run; run()"
)


def started(broker: BrokerProcess, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", HEEDING, *arguments],
        env=environment(broker),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_following_goes_on_as_records_come_until_it_is_interrupted(
    cli: Cli, log: str, broker: BrokerProcess
) -> None:
    cli("produce", log, "before")
    with started(broker, "consume", log, "-f", "--from", "beginning") as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "before\n"
        for value in ("one", "two"):
            cli("produce", log, value)
            assert process.stdout.readline() == f"{value}\n"
        process.send_signal(signal.SIGINT)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 130
    assert stderr == "\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGINT])
@pytest.mark.parametrize("command", ["consume {} -f -g {}", "kafka-console-consumer --topic {} --group {}"])
def test_a_member_that_is_told_to_end_leaves_its_group_first(
    cli: Cli, json_of: JsonOf, log: str, broker: BrokerProcess, command: str, number: signal.Signals
) -> None:
    group = f"group-of-{log}"[:200]
    # Were the session just to run out, the next one would wait for longer than this test may take.
    beginning = ["--from", "beginning"] if command.startswith("consume") else ["--from-beginning"]
    cli("produce", log, "before")
    with started(broker, *command.format(log, group).split(), *beginning) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "before\n"
        process.send_signal(number)
        _, stderr = process.communicate(timeout=30)
    assert process.returncode == 128 + number
    assert "Traceback" not in stderr
    (described,) = json_of("group", "describe", group)
    assert (described["state"], described["members"]) == ("Empty", [])


def test_a_signal_that_is_ignored_stays_so(cli: Cli, log: str, broker: BrokerProcess) -> None:
    script = (
        "import signal; signal.signal(signal.SIGHUP, signal.SIG_IGN)\nfrom moldau.__main__ import run; run()"
    )
    command = [sys.executable, "-c", script, "consume", log, "-f", "--from", "beginning"]
    cli("produce", log, "before")
    with subprocess.Popen(command, env=environment(broker), stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "before\n"
        process.send_signal(signal.SIGHUP)
        cli("produce", log, "after")
        assert process.stdout.readline() == "after\n"
        process.terminate()
        assert process.wait(timeout=30) == 128 + signal.SIGTERM


@pytest.mark.parametrize("module", ["click", "moldau.cli", "moldau.cli.version"])
def test_whoever_interrupts_a_command_that_is_being_loaded_gets_no_complaint(module: str) -> None:
    script = f"""
import sys
class Interrupted:
    def find_spec(self, name, *rest):
        if name == {module!r}:
            raise KeyboardInterrupt
sys.meta_path.insert(0, Interrupted())
from moldau.__main__ import run
run()
"""
    command = [sys.executable, "-c", script, "version"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr.strip()) == (130, "", "")


def test_a_reader_that_has_enough_ends_it_quietly(cli: Cli, log: str, broker: BrokerProcess) -> None:
    cli("produce", log, input="".join(f"{number}\n" for number in range(100_000)))
    with started(broker, "consume", log, "-f", "--from", "beginning") as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "0\n"
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0


def test_what_is_written_does_not_end_with_who_reads_of_it(
    cli: Cli, log: str, broker: BrokerProcess, tmp_path: Path
) -> None:
    lines = tmp_path / "lines"
    lines.write_text("".join(f"{number}\n" for number in range(50_000)))
    with (
        lines.open() as stdin,
        subprocess.Popen(
            [*MOLDAU, "produce", log, "-o", "json"],
            env=environment(broker),
            stdin=stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        ) as process,
    ):
        assert process.stdout is not None
        assert process.stderr is not None
        assert '"offset":0,' in process.stdout.readline()
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 0
    assert cli("consume", log, "--from", "-1").stdout == "49999\n"


@pytest.mark.parametrize(
    "words", ["topic list", "version", "consume {}", "kafka-topics --list", "produce {} x -o json"]
)
def test_no_room_for_what_is_printed_is_one_line(
    cli: Cli, log: str, broker: BrokerProcess, words: str
) -> None:
    cli("produce", log, "x")
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [*MOLDAU, *words.format(log).split()],
            env=environment(broker),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    said = "Error: What is to be printed cannot be written: No space left on device.\n"
    assert (done.returncode, done.stderr) == (1, said)


def test_lines_are_written_as_they_are_typed(cli: Cli, log: str, broker: BrokerProcess) -> None:
    with started(broker, "produce", log, "-o", "json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        for number, value in enumerate(("one", "two")):
            process.stdin.write(f"{value}\n")
            process.stdin.flush()
            assert f'"offset":{number},' in process.stdout.readline()
        process.stdin.write("no end of line")
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 0, stderr
    assert '"offset":2,' in stdout
    assert cli("consume", log).stdout == "one\ntwo\nno end of line\n"


def test_a_file_is_written_without_waiting(
    cli: Cli, log: str, broker: BrokerProcess, tmp_path: object
) -> None:
    with open(f"{tmp_path}/lines", "w+") as lines:
        lines.write("a\nb\n")
        lines.seek(0)
        done = subprocess.run([*MOLDAU, "produce", log], stdin=lines, env=environment(broker), check=False)
    assert done.returncode == 0
    nothing = [*MOLDAU, "produce", log]
    assert (
        subprocess.run(nothing, stdin=subprocess.DEVNULL, env=environment(broker), check=False).returncode
        == 0
    )
    assert cli("consume", log).stdout == "a\nb\n"


def test_writing_is_interrupted_without_a_complaint(log: str, broker: BrokerProcess) -> None:
    with started(broker, "produce", log, "-o", "json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write("one\n")
        process.stdin.flush()
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(timeout=30) == 130
        assert process.stderr is not None
        assert process.stderr.read() == "\n"


@pytest.mark.parametrize("words", [["topic", "list"], ["produce", "orders", "x"]])
def test_what_listens_there_may_not_be_a_broker(words: list[str]) -> None:
    import socket
    import threading

    def answer(server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = server.accept()
                with connection:
                    connection.recv(1000)
                    connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=answer, args=(server,))
        thread.start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        result = CliRunner().invoke(main, [*words, "-b", address])
        server.shutdown(socket.SHUT_RDWR)
        thread.join()
    assert result.exit_code == 5
    assert result.stderr.startswith("Error: ")
    assert result.stderr.count("\n") == 1
    assert result.stderr.count(address) == 1


@pytest.mark.parametrize("words", [["topic", "list"], ["produce", "orders", "x"]])
@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_who_cannot_be_reached_is_told_of_once_with_the_reason_of_the_system(
    words: list[str], host: str
) -> None:
    result = CliRunner().invoke(main, [*words, "-b", f"{host}:1"])
    assert result.exit_code == 5
    assert result.stderr == (
        f"Error: No broker could be reached. Tried {host}:1: Connection refused. Is it running there? -b says"
        " where to look.\n"
    )


def test_tls_where_none_is_spoken_is_told_of_with_a_reason(cli: Cli, broker: BrokerProcess) -> None:
    result = cli("topic", "list", "-X", "security.protocol=SSL", exit_code=5)
    assert f"Tried {broker.address}: the connection was ended while TLS was being agreed on" in result.stderr


@pytest.mark.parametrize("name", ["PLAINTEXT", "EXTERNAL_1"])
def test_an_address_may_be_written_as_a_listener_is(cli: Cli, broker: BrokerProcess, name: str) -> None:
    cli("topic", "list", "-b", f"{name}://{broker.address}, {broker.address}")
    cli("kafka-topics", "--list", "--bootstrap-server", f"{name}://{broker.address}")


@pytest.mark.parametrize("words", [["topic", "list", "-b"], ["doctor"]])
@pytest.mark.parametrize("address", ["http://127.0.0.1:9644", "HTTPS://127.0.0.1:9644/path"])
def test_an_address_of_a_web_page_is_none_of_a_broker(words: list[str], address: str) -> None:
    result = CliRunner().invoke(main, [*words, address])
    assert result.exit_code == 2
    said = f"'{address}' is the address of web pages; '127.0.0.1:9644' would be one of a broker."
    assert said in result.stderr


HUGE = 10**20


@pytest.mark.parametrize(
    "words",
    [
        f"topic create x -p {2**31}",
        f"topic create x -r {2**15}",
        f"topic add-partitions {{}} --total {HUGE}",
        f"topic trim {{}} --before @{HUGE} --yes",
        f"produce {{}} x --timestamp {HUGE}",
        f"consume {{}} --from @{HUGE}",
        f"consume {{}} --from {HUGE}",
        f"group seek g --topic {{}} --to @{HUGE}",
        "topic list --timeout 1e300",
        "topic list --timeout nan",
    ],
)
def test_a_number_that_no_request_can_say_is_wrong_usage(cli: Cli, log: str, words: str) -> None:
    result = cli(*words.format(log).split(), exit_code=2)
    assert isinstance(result.exception, SystemExit)
    assert "Error: " in result.stderr


@pytest.mark.parametrize(
    "words",
    [
        f"kafka-topics --create --topic x --partitions {HUGE}",
        f"kafka-topics --create --topic x --replica-assignment {HUGE}",
        f"kafka-topics --describe --topic {{}} --partition-size-limit-per-response {HUGE}",
        f"kafka-get-offsets --topic {{}} --time {HUGE}",
        f"kafka-console-consumer --topic {{}} --partition 0 --offset {HUGE}",
        "kafka-configs --alter --entity-type brokers --entity-name abc --add-config log.retention.ms=4",
    ],
)
def test_a_number_that_no_request_can_say_fails_a_tool_of_kafka(cli: Cli, log: str, words: str) -> None:
    result = cli(*words.format(log).split(), exit_code=1)
    assert isinstance(result.exception, SystemExit)
    # kafka-topics says some of it on stdout, as Kafka's does.
    assert "Error" in result.output


def test_a_setting_that_is_not_there_is_named_as_it_was_typed(cli: Cli) -> None:
    result = cli("topic", "list", "-X", "foo.bar=1", exit_code=2)
    assert "There is no client setting 'foo.bar'." in result.stderr


def test_who_does_not_answer_is_not_waited_for() -> None:
    import socket

    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        result = CliRunner().invoke(main, ["topic", "list", "-b", address, "--timeout", "0.2"])
    assert result.exit_code == 5
    assert "did not answer within 0.2 s" in result.stderr


def test_a_short_command_loads_neither_the_client_nor_asyncio(broker: BrokerProcess) -> None:
    script = (
        "import sys; from moldau.cli import main\n"
        "main(['topic', 'list'], standalone_mode=False)\n"
        "print([name for name in ('asyncio', 'rich', 'moldau.client', 'moldau.node') if name in sys.modules])"
    )
    run = subprocess.run(
        [sys.executable, "-c", script], env=environment(broker), capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines()[-1] == "[]"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_gets_its_script(shell: str) -> None:
    result = CliRunner().invoke(main, ["completion", shell])
    assert result.exit_code == 0
    assert "_MOLDAU_COMPLETE" in result.stdout


# What bash takes for words of their own, at their default.
WORD_BREAKS = " \t\n\"'><=;|&(:@"

# What happens in bash when the tab key is pressed behind a line, which the function gets whole and in words.
PRESS_TAB = """
PATH="$1:$PATH" COMP_LINE=$2 COMP_POINT=${#2}
eval "$(moldau completion bash)"
shift 2
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
COMP_WORDBREAKS=$WORD_BREAKS
# Bash has it only while a person completes.
compopt() { printf 'option %s\n' "$*"; }
complete -p moldau | grep -q _moldau_completion || exit 9
_moldau_completion moldau "${@: -1}" "${@: -2:1}"
printf 'reply %s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def pressing_tab(broker: BrokerProcess, tmp_path_factory: pytest.TempPathFactory) -> PressTab:
    """The tab key behind a line in bash."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    names = ["completed", "com:pleted"]
    result = CliRunner().invoke(main, ["topic", "create", names[0], "-b", broker.address])
    assert result.exit_code == 0, result.output
    result = CliRunner().invoke(main, ["consume", names[0], "--group", names[1], "-b", broker.address])
    assert result.exit_code == 0, result.output
    command = tmp_path_factory.mktemp("bin") / "moldau"
    command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m moldau "$@"\n')
    command.chmod(0o755)

    def press(line: str, *, address: str = broker.address) -> tuple[list[str], list[str]]:
        words = [word for part in line.split(" ") for word in re.findall("[=:@]+|[^=:@]+", part) or [""]]
        run = subprocess.run(
            [bash, "--norc", "-c", PRESS_TAB, "bash", str(command.parent), line, *words],
            env={**environment(broker), "MOLDAU_BOOTSTRAP_SERVER": address, "WORD_BREAKS": WORD_BREAKS},
            capture_output=True,
            text=True,
            check=False,
        )
        assert run.stderr == ""
        # Bash replaces what it takes for the last word, but for a quote before it.
        quotes = line.count('"') % 2
        stem = line[: line.rindex('"') + 1] if quotes else re.sub("[^ =:@]*$", "", line)
        printed = [each.partition(" ") for each in run.stdout.splitlines()]
        replies = [stem + text for kind, _, text in printed if kind == "reply" and text]
        return replies, [text for kind, _, text in printed if kind == "option"]

    return press


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("to", ["topic"]),
        ("kafka-t", ["kafka-topics"]),
        ("topic cr", ["topic create"]),
        ("topic list --int", ["topic list --internal"]),
        ("consume compl", ["consume completed"]),
        ("topic describe compl", ["topic describe completed"]),
        ('topic describe "compl', ['topic describe "completed']),
        ("config get topic compl", ["config get topic completed"]),
        ("config get broker de", ["config get broker default"]),
        ("produce completed -z zs", ["produce completed -z zstd"]),
        ("completion fi", ["completion fish"]),
        ("completion ", ["completion bash", "completion zsh", "completion fish"]),
        (
            "config explain log.retention.m",
            ["config explain log.retention.minutes", "config explain log.retention.ms"],
        ),
        # Where bash sees several words.
        ("topic describe -b BROKER compl", ["topic describe -b BROKER completed"]),
        (
            "topic describe --bootstrap-server=BROKER compl",
            ["topic describe --bootstrap-server=BROKER completed"],
        ),
        ("group describe com:pl", ["group describe com:pleted"]),
        ("group describe com:", ["group describe com:pleted"]),
        ("group describe -b BROKER com:pl", ["group describe -b BROKER com:pleted"]),
        ("topic alter completed --unset=retention.m", ["topic alter completed --unset=retention.ms"]),
        # What cannot be meant is not said before it is run.
        ("topic describe -b a:b:c compl", []),
        ("topik descr", []),
    ],
)
def test_bash_completes_commands_options_topics_groups_and_settings(
    pressing_tab: PressTab, broker: BrokerProcess, line: str, completed: list[str]
) -> None:
    def typed(text: str) -> str:
        return f"moldau {text.replace('BROKER', broker.address)}"

    # Where the line says which cluster is meant, it is that one.
    address = "127.0.0.1:1" if "BROKER" in line else broker.address
    assert pressing_tab(typed(line), address=address) == ([typed(text) for text in completed], [])


@pytest.mark.parametrize(
    ("line", "completed"),
    [
        ("topic create x -c retention.m", "topic create x -c retention.ms="),
        ("topic create x --config=retention.m", "topic create x --config=retention.ms="),
        ("config set topic x retention.m", "config set topic x retention.ms="),
        ("dev --override num.part", "dev --override num.partitions="),
        ("config explain --override=num.part", "config explain --override=num.partitions="),
    ],
)
def test_bash_leaves_no_space_where_a_value_must_follow(
    pressing_tab: PressTab, line: str, completed: str
) -> None:
    assert pressing_tab(f"moldau {line}") == ([f"moldau {completed}"], ["-o nospace"])


@pytest.mark.parametrize("line", ["moldau start -c serv", "moldau start --config=serv"])
def test_bash_completes_files(pressing_tab: PressTab, line: str) -> None:
    assert pressing_tab(line) == ([], ["-o default"])


@pytest.mark.parametrize(
    ("shell", "line", "word", "completed"),
    [
        ("zsh", "moldau topic create x --config=retention.m", "4", "--config=retention.ms="),
        ("zsh", "moldau topic create x --config retention.m", "5", "retention.ms="),
        ("zsh", "moldau topic describe -b 127.0.0.1:9092 --off", "5", "--offsets"),
        (
            "fish",
            "moldau topic create x --config=retention.m",
            "--config=retention.m",
            "--config=retention.ms=",
        ),
        ("fish", "moldau topic describe -b 127.0.0.1:9092 --off", "--off", "--offsets"),
    ],
)
def test_shells_that_replace_whole_words_get_whole_words(
    shell: str, line: str, word: str, completed: str
) -> None:
    asked = {"_MOLDAU_COMPLETE": f"{shell}_complete", "COMP_WORDS": line, "COMP_CWORD": word}
    run = subprocess.run(
        [sys.executable, "-m", "moldau"],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=True,
    )
    kind, value, *_ = re.split(r"[,\n\t]", run.stdout)
    assert (kind, value) == ("plain", completed)


# ---------------------------------------------------------------- at a terminal


def at_a_terminal(
    broker: BrokerProcess, *arguments: str, answer: str = "", stdout: int | None = None, **variables: str
) -> tuple[int, str]:
    """Run a command at a terminal, perhaps with its stdout elsewhere; its exit code, and what is shown."""
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MOLDAU, *arguments],
        env=environment(broker) | {"TERM": "xterm"} | variables,
        stdin=theirs,
        stdout=theirs if stdout is None else stdout,
        stderr=theirs,
    )
    os.close(theirs)
    os.write(ours, answer.encode())
    shown = b""
    # The end of a terminal is an error.
    with contextlib.suppress(OSError):
        while chunk := os.read(ours, 65536):
            shown += chunk
    os.close(ours)
    return process.wait(), shown.decode()


@pytest.mark.parametrize("no_color", ["", "1"])
def test_long_work_shows_a_bar_that_leaves_no_trace_in_the_results(
    cli: Cli, log: str, broker: BrokerProcess, tmp_path: Path, no_color: str
) -> None:
    lines = "".join(f"{number}\n" for number in range(5000))
    cli("produce", log, input=lines)
    with open(tmp_path / "out", "w+b") as out:
        code, shown = at_a_terminal(broker, "consume", log, stdout=out.fileno(), NO_COLOR=no_color)
    assert code == 0
    assert (tmp_path / "out").read_text() == lines
    assert f"reading {log[:20]}" in shown
    assert "5000/5000" in shown
    assert ("\x1b[32m" in shown) == (not no_color)


@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_table_is_coloured_for_terminals_alone(
    cli: Cli, log: str, broker: BrokerProcess, no_color: str
) -> None:
    code, shown = at_a_terminal(broker, "topic", "list", NO_COLOR=no_color)
    assert code == 0
    assert ("\x1b[1mTOPIC" in shown) == (not no_color)


@pytest.mark.parametrize(("answer", "exit_code"), [("y\n", 0), ("n\n", 1), ("\n", 1), ("\x04", 130)])
def test_what_cannot_be_undone_is_asked_for(
    cli: Cli, log: str, broker: BrokerProcess, answer: str, exit_code: int
) -> None:
    code, shown = at_a_terminal(broker, "topic", "delete", log, answer=answer)
    assert f"Delete {log} with all records? [y/N]" in shown
    assert code == exit_code, shown
    assert (log in cli("topic", "list").stdout) == (exit_code != 0)


@pytest.mark.parametrize("arguments", [["delete"], ["trim", "--before", "end"]])
def test_a_question_can_be_interrupted(
    cli: Cli, log: str, broker: BrokerProcess, arguments: list[str]
) -> None:
    ours, theirs = pty.openpty()
    process = subprocess.Popen(
        [*MOLDAU, "topic", *arguments, log], env=environment(broker), stdin=theirs, stderr=theirs
    )
    os.close(theirs)
    shown = b""
    while b"[y/N]: " not in shown:
        shown += os.read(ours, 1000)
    # Python does not notice a signal that comes just before it begins to wait.
    while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130
    os.close(ours)
    assert log in cli("topic", "list").stdout


def test_whoever_types_records_is_told_how(log: str, broker: BrokerProcess) -> None:
    code, shown = at_a_terminal(broker, "produce", log, answer="one\n\x04")
    assert code == 0
    assert "Ctrl-D ends" in shown
    assert f"1 record written to {log}" in shown


def test_no_colour_reaches_a_pipe(broker: BrokerProcess, log: str) -> None:
    done = subprocess.run(
        [*MOLDAU, "topic", "list"], env=environment(broker), capture_output=True, check=True
    )
    assert b"\x1b" not in done.stdout


def test_every_tool_of_kafka_introduces_itself_as_the_list_does() -> None:
    for name, line in KAFKA_TOOLS.items():
        command = main.get_command(main.make_context("moldau", [name]), name)
        assert command is not None
        assert command.help is not None
        assert command.help.splitlines()[0] == line
