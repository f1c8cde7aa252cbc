"""A person gives the producer's settings by environment, file and command line, in rising priority."""

import argparse
import json
import os
import re
from pathlib import Path

from safeproducer.cli.common.screen import Redactor, Screen
from safeproducer.cli.common.stop import Failure
from safeproducer.kafka.properties import is_sensitive

Setting = str | int | float | bool | None

_BLANKS = " \t\f"
_LINE = re.compile(r"[ \t\f]*(?:[#!][^\r\n]*|((?:\\(?:\r\n|[\s\S])|[^\\\r\n])+))")
"""A comment, or a line with those that continue it. A backslash takes what follows it, be it the end of the line."""
_CONTINUED = re.compile(r"\\(?:\r\n|[\r\n])[ \t\f]*")
_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)", re.DOTALL)
_NAMED = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_SPLIT = re.compile(r"((?:\\.|[^\\=:\s])*)\s*[=:]?\s*(.*)", re.DOTALL)
CONFIG_FILE_VARIABLE = "SAFEPRODUCER_CONFIG_FILE"
_FILES = frozenset({"ssl.ca.location", "ssl.certificate.location", "ssl.key.location", "ssl.keystore.location"})
_PORT = re.compile(r":\d+$")
_RATE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,6})?) ?(?:([kKMG]?)(i?)B(?:/s)?)?")
_DURATION = re.compile(r"([0-9]{1,9}(?:\.[0-9]{1,6})?) ?(s|min|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400}


def read_config_file(path: str) -> dict[str, Setting]:
    """Return the settings of a UTF-8 file; one that begins with ``{`` is JSON, any other is properties.

    Raises Failure, naming the file (and the line), never a value.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        sentence = f"The configuration file {path} cannot be read ({error.strerror}): correct its path or its rights."
        raise Failure(sentence, code="config-file") from None
    except UnicodeDecodeError:
        raise Failure(f"The configuration file {path} is not UTF-8 text.", code="config-file") from None
    if not text.lstrip().startswith("{"):
        return parse_properties(text)
    try:
        settings = json.loads(text)
    except json.JSONDecodeError as error:
        sentence = f"The configuration file {path} is not valid JSON (line {error.lineno}: {error.msg})."
        raise Failure(sentence, code="config-file") from None
    for name, value in settings.items():
        if not isinstance(value, str | int | float | bool | None):
            sentence = f"In the configuration file {path} the value of {name} is no string, number or boolean."
            raise Failure(sentence, code="config-file")
    return dict(settings)


def parse_properties(text: str) -> dict[str, Setting]:
    """Parse Java's properties format; a later line wins over an earlier one of the same name."""
    lines = filter(None, (_CONTINUED.sub("", line).lstrip(_BLANKS) for line in _LINE.findall(text)))
    pairs = (found.groups() for line in lines if (found := _SPLIT.match(line)))
    return {_unescape(name): _unescape(value) for name, value in pairs}


def _unescape(text: str) -> str:
    def plain(found: re.Match[str]) -> str:
        escape = found[1]
        return chr(int(escape[1:], 16)) if len(escape) == 5 else _NAMED.get(escape, escape)

    return _ESCAPE.sub(plain, text)


def add_settings_arguments(parser: argparse.ArgumentParser, *, servers_help: str) -> None:
    add = parser.add_argument_group("connection").add_argument
    add("--bootstrap-servers", metavar="HOST:PORT[,...]", help=servers_help)
    where = f"(default: the file named by the environment variable {CONFIG_FILE_VARIABLE})"
    of_file = "settings of the producer, as Java-style properties or a JSON object; the place for passwords"
    add("--config-file", metavar="FILE", help=f"{of_file} {where}")
    of_one = "one setting of the producer; repeatable; wins over --config-file"
    add("--config", metavar="NAME=VALUE", action="append", default=[], help=of_one)
    patience = "seconds to wait for a broker before anything is read (default: 10)"
    add("--connect-timeout", metavar="S", type=seconds, default=10.0, help=patience)


def seconds(text: str) -> float:
    """Convert an argument into seconds; a negative number or no number at all is refused."""
    value = float(text)
    if not 0 <= value < float("inf"):
        raise ValueError(text)
    return value


def rate(text: str) -> int:
    """Convert an argument into bytes per second: 10000000, 10MB, 10 MB/s, 9.5MiB. Bits are refused."""
    found = _RATE.fullmatch(text.strip())
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate, give bytes (not bits) per second, like 10MB")
    size = float(found[1]) * (1024 if found[3] else 1000) ** " kMG".index((found[2] or " ").replace("K", "k"))
    if not 1 <= size < 2**63:
        raise argparse.ArgumentTypeError(f"{text!r} is no rate above zero that Kafka takes, give one like 10MB")
    return int(size)


def duration(text: str) -> float:
    """Convert an argument into seconds, more than zero: 90s, 30min, 2h, 1d."""
    found = _DURATION.fullmatch(text.strip())
    if found is None or not float(found[1]):
        raise argparse.ArgumentTypeError(f"{text!r} is no time above zero, give one like 90s, 30min or 2h")
    return float(found[1]) * _SECONDS[found[2]]


def read_settings(args: argparse.Namespace, screen: Screen, *, transactions: bool = False) -> dict[str, Setting]:
    """Return the merged settings, after teaching the screen which of their values are secret.

    ``transactions``: the command writes nothing, so a transactional.id does not matter.

    ``bootstrap.servers`` may be missing: whether it must be there is the command's decision.
    """
    settings: dict[str, Setting] = {}
    path = args.config_file or os.environ.get(CONFIG_FILE_VARIABLE)
    if path:
        settings.update(read_config_file(path))
    given = dict(_pair(number, text) for number, text in enumerate(args.config, start=1))
    settings.update(given)
    screen.redact = Redactor(settings)
    for name in filter(is_sensitive, given):
        where = "on the command line, where every user of this machine can read it"
        screen.note(f"{name} is {where}: put it into a --config-file.")
    if args.bootstrap_servers is not None:
        settings["bootstrap.servers"] = args.bootstrap_servers
    if settings.get("transactional.id") and not transactions:
        raise Failure("The commands write without transactions: remove transactional.id.", code="configuration")
    _check_servers(settings)
    _check_files(settings)
    return settings


def _pair(number: int, text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        # The text itself is not shown: it may be a password that lost its name.
        raise Failure(f"Argument number {number} of --config is not of the form NAME=VALUE.")
    return name.strip(), value


def _check_servers(settings: dict[str, Setting]) -> None:
    """librdkafka takes any text for bootstrap.servers and then waits for a broker that cannot exist."""
    servers = settings.get("bootstrap.servers")
    if servers is None:
        return
    for server in str(servers).split(","):
        host = server.strip().rpartition("://")[2]
        if not _PORT.sub("", host) or " " in host:
            way_out = "give host:port, or several with commas in between"
            raise Failure(f"bootstrap.servers = {servers!r} names no broker: {way_out}.")


def _check_files(settings: dict[str, Setting]) -> None:
    """librdkafka says only that OpenSSL failed; which file is missing is what a person needs."""
    for name in _FILES.intersection(settings):
        path = str(settings[name])
        try:
            open(path, "rb").close()
        except IsADirectoryError:
            continue
        except OSError as error:
            if (name, path) != ("ssl.ca.location", "probe"):
                why = f"the file cannot be read ({error.strerror}); correct the path or its rights."
                raise Failure(f"{name} = {path}: {why}", code="configuration") from None
