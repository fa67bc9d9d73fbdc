"""`moldau completion`: how shells complete commands, options, topics, groups and settings."""

from __future__ import annotations

import os
from typing import Final

import click
from click.shell_completion import (
    BashComplete,
    CompletionItem,
    FishComplete,
    ShellComplete,
    ZshComplete,
    add_completion_class,
    split_arg_string,
)

from moldau.cli import COMPLETION_VARIABLE

# What bash takes for the end of a word in the middle of what we take for one: host:port, --name=value.
_BREAKS: Final = ":=@"
# Bash has cut the line into words where its COMP_WORDBREAKS are, so that it is given whole. What is wrong
# with a line is said when it is run, not while it is typed.
_BASH: Final = """\
%(complete_func)s() {
    local type value
    COMPREPLY=()
    while IFS=, read -r type value; do
        case $type in
            dir) compopt -o dirnames ;;
            file) compopt -o default ;;
            plain) COMPREPLY+=("$value")
                   [[ $value == *= ]] && compopt -o nospace ;;
        esac
    done < <(env COMP_LINE="$COMP_LINE" COMP_POINT="$COMP_POINT" COMP_WORDBREAKS="$COMP_WORDBREAKS" \\
             %(complete_var)s=bash_complete "$1" 2>/dev/null)
    return 0
}

complete -o nosort -F %(complete_func)s %(prog_name)s
"""


class _Completing(ShellComplete):
    """What is the same in all shells."""

    def get_completions(self, args: list[str], incomplete: str) -> list[CompletionItem[str]]:
        """The whole words that the last one may become; none if those before it cannot be meant."""
        try:
            items = super().get_completions(args, incomplete)
        except click.ClickException:
            return []
        flag, equals, _ = incomplete.partition("=")
        if equals and flag.startswith("-"):
            # Click completes the value alone.
            for item in items:
                if item.type == "plain":
                    item.value = f"{flag}={item.value}"
        return items


class Bash(_Completing, BashComplete):
    """Bash, which takes the end of a word for all of it."""

    source_template = _BASH

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__(*args, **kwargs)  # type: ignore[arg-type]
        self._known = ""

    def get_completion_args(self) -> tuple[list[str], str]:
        """The words up to the cursor, and the one that is being typed."""
        line = os.environ["COMP_LINE"][: int(os.environ["COMP_POINT"])]
        words = split_arg_string(line)
        # Whatever is typed next belongs to the last word, or begins one.
        if len(split_arg_string(f"{line}x")) > len(words):
            words.append("")
        *args, incomplete = words[1:] or [""]
        self._known = before_break(line, incomplete, os.environ["COMP_WORDBREAKS"])
        return args, incomplete

    def format_completion(self, item: CompletionItem[str]) -> str:
        """An item without what bash takes for words of their own."""
        return f"{item.type},{item.value.removeprefix(self._known)}"


class Zsh(_Completing, ZshComplete):
    """Zsh."""


class Fish(_Completing, FishComplete):
    """Fish."""


_SHELLS: Final[dict[str, type[_Completing]]] = {"bash": Bash, "zsh": Zsh, "fish": Fish}
for _name, _shell in _SHELLS.items():
    # Click looks here for who completes.
    add_completion_class(_shell, _name)


def before_break(line: str, word: str, breaks: str) -> str:
    """What is in the last word of a line before that which bash completes."""
    if not line.endswith(word) or line.removesuffix(word)[-1:].strip():
        # It is quoted, and bash leaves it whole.
        return ""
    end = max((word.rfind(each) for each in _BREAKS if each in breaks), default=-1)
    return word[: end + 1]


@click.command()
@click.argument("shell", type=click.Choice(list(_SHELLS)))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete commands.

    Names of topics and groups are completed too, from the cluster that -b or the environment names, and
    those of settings.

    \b
    Examples:
      eval "$(moldau completion bash)"                                    now
      echo 'eval "$(moldau completion zsh)"' >> ~/.zshrc                  always
      moldau completion fish > ~/.config/fish/completions/moldau.fish
    """
    click.echo(_SHELLS[shell](ctx.find_root().command, {}, "moldau", COMPLETION_VARIABLE).source())
