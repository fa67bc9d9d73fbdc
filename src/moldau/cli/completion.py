"""`moldau completion`: the script that lets a shell complete commands, options and topics."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print the script that lets a shell complete commands.

    Names of topics are completed too, from the cluster that -b or the environment names.

    \b
    Examples:
      eval "$(moldau completion bash)"                                    now
      echo 'eval "$(moldau completion zsh)"' >> ~/.zshrc                  always
      moldau completion fish > ~/.config/fish/completions/moldau.fish
    """
    completion = get_completion_class(shell)
    assert completion is not None, f"click knows {shell}"
    click.echo(completion(ctx.find_root().command, {}, "moldau", "_MOLDAU_COMPLETE").source())
