"""The command ``safeproducer``: chooses a subcommand and turns expected errors into one sentence."""

import argparse
import logging
import sys
import traceback
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any, NoReturn

from safeproducer.cli.common.screen import Screen
from safeproducer.cli.common.stop import NOTHING_SENT, Failure
from safeproducer.cli.run import command as run

_EPILOG = """\
examples:
  safeproducer demo
  safeproducer doctor --bootstrap-servers localhost:9092
  safeproducer replication status --bootstrap-servers localhost:9092
  safeproducer run python app.py
"""


class _Parser(argparse.ArgumentParser):
    """Prints one sentence for a usage error, without repeating arguments that may hold a password."""

    def error(self, message: str) -> NoReturn:
        name, found, unknown = message.partition("unrecognized arguments: ")
        if found:
            names = [word.partition("=")[0] for word in unknown.split(" ") if word.startswith("-")]
            message = f"unknown argument {', '.join(names)}" if names else "too many arguments"
        elif name.startswith("argument ") and ": invalid" in name:
            what, _, refused = name.partition(": invalid ")
            kind, _, choices = refused.partition(" value: ")[0], *refused.partition("(choose from ")[1:]
            way_out = f"choose from {choices.rstrip(')')}" if choices else f"it takes {kind}"
            message = f"{what}: the value cannot be used: {way_out}"
        self.exit(NOTHING_SENT, f"safeproducer: error: {message}; see {self.prog} --help\n")


def main(arguments: Sequence[str] | None = None) -> int:
    ours, program = run.divided(sys.argv[1:] if arguments is None else arguments)
    args = _parser(ours[:1] != ["run"]).parse_args(ours)
    args.program = program
    screen = Screen(json_output=args.json, quiet=args.quiet)
    if not args.debug:
        # The command says the same in its own words, once.
        logging.getLogger("safeproducer").addHandler(logging.NullHandler())
    try:
        status: int = args.run(args, screen)
        return status
    except Failure as failure:
        if args.debug:
            screen.debug(traceback.format_exc())
        screen.error(str(failure))
        if args.json:
            error = {"code": failure.code, "message": str(failure)}
            screen.result_json({"command": args.command, "error": error, "exit_code": failure.exit_code})
        return failure.exit_code
    except KeyboardInterrupt:
        # Before the command could set up its own handling there is nothing to finish.
        return 130


def _parser(whole: bool = True) -> argparse.ArgumentParser:
    """The parser of all commands, or of `run` alone, which needs none of what the others import."""
    parser = _Parser(
        prog="safeproducer",
        description="Write to Kafka and account for every record.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"safeproducer {version('safeproducer')}")
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    commands: dict[str, Any] = {"run": run}
    if whole:
        from safeproducer.cli.demo import command as demo  # noqa: PLC0415
        from safeproducer.cli.doctor import command as doctor  # noqa: PLC0415
        from safeproducer.cli.replication import command as replication  # noqa: PLC0415

        commands = {"demo": demo, "doctor": doctor, "replication": replication, **commands}
    for name, command in commands.items():
        subparser = subparsers.add_parser(
            name, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **command.PARSER
        )
        command.add_arguments(subparser)
        subparser.add_argument("--debug", action="store_true", help="show log messages and tracebacks")
        subparser.set_defaults(run=command.run)
    return parser


if __name__ == "__main__":
    sys.exit(main())
