"""The command-line application: every command by name, every known error as one line."""

from __future__ import annotations

import logging
import os
import sys
import warnings
from functools import cache
from typing import TextIO

import typer

from onnxfr.errors import CodeError, OnnxfrError, OnnxfrWarning

log = logging.getLogger(__name__)

app = typer.Typer(
    name="onnxfr",
    help="How robust is a face-recognition model? One ONNX file in, a trustworthy report out.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


@cache
def _register() -> None:
    from onnxfr.cli.align import align
    from onnxfr.cli.attack import attack
    from onnxfr.cli.check import check
    from onnxfr.cli.compare import compare
    from onnxfr.cli.data import data_app
    from onnxfr.cli.demo import demo
    from onnxfr.cli.doctor import doctor
    from onnxfr.cli.export import export
    from onnxfr.cli.importing import import_model
    from onnxfr.cli.listing import ls
    from onnxfr.cli.remote import remote_app
    from onnxfr.cli.report import report
    from onnxfr.cli.run import run
    from onnxfr.cli.serve import serve
    from onnxfr.cli.suite import suite_app
    from onnxfr.cli.verify import verify
    from onnxfr.cli.zoo import zoo_app

    app.command("import")(import_model)
    for command in (
        demo,
        check,
        verify,
        attack,
        run,
        report,
        compare,
        export,
        align,
        serve,
        ls,
        doctor,
    ):
        app.command(command.__name__)(command)
    app.add_typer(zoo_app, name="zoo")
    app.add_typer(data_app, name="data")
    app.add_typer(remote_app, name="remote")
    app.add_typer(suite_app, name="suite")


@app.callback()
def _root(
    verbose: bool = typer.Option(False, "--verbose", "-v", help="Log what is being done."),
    version: bool = typer.Option(False, "--version", help="Print the version and exit."),
) -> None:
    if version:
        from onnxfr import __version__

        typer.echo(f"onnxfr {__version__}")
        raise typer.Exit
    level = logging.INFO if verbose else logging.WARNING
    shown = logging.StreamHandler()
    # A run lets every message of ours pass for its log file; the screen asks for less.
    shown.setLevel(level)
    logging.basicConfig(level=level, format="%(levelname)s %(name)s: %(message)s", handlers=[shown])


def _show_warning(
    message: Warning | str,
    category: type[Warning],
    filename: str,
    lineno: int,
    file: TextIO | None = None,
    line: str | None = None,
) -> None:
    typer.echo(f"warning: {message}", err=True)


def run() -> None:
    """Run the application; known errors become one line and an exit code, never a traceback."""
    _register()
    warnings.simplefilter("ignore")
    warnings.simplefilter("always", OnnxfrWarning)
    warnings.showwarning = _show_warning
    try:
        app()
    except OnnxfrError as error:
        _tell(str(error), trace=isinstance(error, CodeError))
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        typer.echo("interrupted", err=True)
        sys.exit(130)
    except BrokenPipeError:
        # The reader of our output has gone; there is nobody left to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except OSError as error:
        named = f"{error.filename}: " if error.filename else ""
        _tell(f"{named}{error.strerror or error}", trace=True)
        sys.exit(OnnxfrError.exit_code)


def _tell(message: str, *, trace: bool) -> None:
    """Say what went wrong, and how to see its trace where that would help."""
    shown = log.isEnabledFor(logging.INFO)
    hint = "; 'onnxfr --verbose ...' shows the trace" if trace and not shown else ""
    typer.echo(f"error: {message}{hint}", err=True)
    log.info("the trace of this error", exc_info=True)
