"""The command: one Typer app over the subcommands in `labeltrace.commands`."""

from __future__ import annotations

import io
import os
import signal
import sys
import warnings
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from labeltrace.commands import bench, data, labels
from labeltrace.commands.audit import audit
from labeltrace.commands.console import complain, console
from labeltrace.commands.demo import demo
from labeltrace.commands.diagnose import diagnose
from labeltrace.commands.list import list_
from labeltrace.commands.noise import noise
from labeltrace.commands.report import report
from labeltrace.commands.reproduce import reproduce
from labeltrace.commands.review import review
from labeltrace.commands.train import train
from labeltrace.errors import InputError


class _Commands(TyperGroup):
    """The commands; Ctrl-C in one is told here, as newer versions of Typer return its exit code and no word."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command that was asked for."""
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            raise typer.Exit(complain("stopped", 130)) from None


app = typer.Typer(
    name="labeltrace",
    cls=_Commands,
    help="Classification with wrong labels: train a robust model, learn what to keep, relabel or review.",
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

# Typer carries its own copy of click in newer versions: take the base of all usage errors from the class it exports.
UsageProblem: Any = typer.BadParameter.__mro__[2]


def main(argv: list[str] | None = None) -> None:
    """Run the command; a user's mistake is one line on stderr and exit code 2, Ctrl-C is 130."""
    signal.signal(signal.SIGTERM, _stop)
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # not where a shell has it ignored
        signal.signal(signal.SIGINT, _stop)
    warnings.formatwarning = _one_line
    if isinstance(sys.stdout, io.TextIOWrapper):  # a sign that the terminal does not have is shown by its number
        sys.stdout.reconfigure(errors="backslashreplace")
    sys.exit(_main(sys.argv[1:] if argv is None else argv))


def _main(argv: list[str]) -> int:
    try:
        unsaid = not argv or argv in [[group.name] for group in app.registered_groups]  # which command is to run
        code = app([*argv, "--help"] if unsaid else argv, prog_name="labeltrace", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except typer.Exit as error:
        return error.exit_code
    except UsageProblem as error:
        return complain(error.format_message() or "see labeltrace --help", 2)
    except InputError as error:
        return complain(str(error), 2)
    except (KeyboardInterrupt, typer.Abort):
        return complain("stopped", 130)
    except BrokenPipeError:
        return 0
    except UnicodeEncodeError as error:  # a name of bytes that are no UTF-8, where a library takes none
        return complain(f"{error.object}: not UTF-8, or more than {error.encoding} can say; give it another name", 2)
    except OSError as error:  # a folder that may not be written to, a full disk, a file that is gone
        where = "" if error.filename is None else f"{error.filename}: "
        return complain(f"{where}{error.strerror or error}", 2)


def _one_line(message: Warning | str, *_: object, **__: object) -> str:
    """A warning as people read it: what, not in which line of whose file."""
    return f"labeltrace: {' '.join(str(message).split())}\n"


def _stop(*_: object) -> None:
    """SIGTERM (a scheduler ending the job) is treated as Ctrl-C.

    Nothing has begun while torch is imported, and an exception there ends in a crash of it.
    """
    torch = sys.modules.get("torch")
    if torch is not None and getattr(torch.__spec__, "_initializing", False):
        os._exit(complain("stopped", 130))
    raise KeyboardInterrupt


def _version(wanted: bool) -> None:
    if wanted:
        from labeltrace import __version__

        console.print(f"labeltrace {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", callback=_version, is_eager=True)
    ] = False,
) -> None:
    pass


app.command()(demo)
app.command()(train)
app.command()(audit)
app.command()(review)
app.add_typer(labels.app, name="labels")
app.command()(report)
app.command()(noise)
app.command()(diagnose)
app.command()(reproduce)
app.command("list")(list_)
app.add_typer(data.app, name="data")
app.add_typer(bench.app, name="bench")
