"""Searches the committed files for what belongs to one machine, and the documents for what makes them hard to read.

Exits 1 and shows every finding: registry hosts and folders in any file; in *.md long lines, long paragraphs and a front
page that grew; in *.md, comments and docstrings words that the glossary replaces; and, where there are too many of
them, sentences and names of tests that begin without a subject.
"""

from __future__ import annotations

import ast
import inspect
import io
import re
import subprocess
import sys
import tokenize
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FORBIDDEN = {
    "the host of a package registry (users configure their own)": re.compile(
        r"\b(?:(?:files\.)?python(?:hosted|software)|(?:test\.)?pypi|repo\d?\.maven(?:\.apache)?|deb\.debian|"
        r"(?:security|snapshot)\.debian|archive\.ubuntu|packages\.confluent|conda\.anaconda|registry\.npmjs|"
        r"proxy\.golang|plugins\.gradle|static\.crates)\.(?:org|io|com)\b"
        r"|\b(?:artifactory|nexus|\w+-(?:python|maven|apt)\.pkg)\.[\w.-]+\.\w+",
        re.IGNORECASE,
    ),
    "an index chosen in a file (users configure their own)": re.compile(
        r"^\s*--?(?:(?:extra-)?index-url|find-links|trusted-host)\b", re.MULTILINE
    ),
    "a folder of one machine": re.compile(r"(?<![\w.$}/-])/(?:work|root|home/[a-z]\w*|Users/\w+|tmp)/\w"),
}

GLOSSARY = "docs/internals/glossary.md"
REPLACED = "## Words that are not used"
"""The heading in the glossary of the table whose first column holds them, separated by commas."""
FRONT_PAGE = "README.md"
LONGEST_LINE = 120
LONGEST_PARAGRAPH = 90
"""Words."""
FRONT_PAGE_LINES, FRONT_PAGE_WORDS = 110, 900
MOST_WITHOUT_SUBJECT = {"sentences of documents": 3.0, "sentences of the package": 3.0, "names of tests": 3.0}
"""Per cent of each kind that may begin without a subject."""

_FENCE = re.compile(r"^\s*(?:```|~~~)")
_CODE = re.compile(r"`[^`\n]*`|\]\([^)\s]*\)")
"""Names in the code, and addresses of links: not prose."""
_STARTS = re.compile(r"^\s*(?:[-*]|\d+\.)\s|^#")
_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')*`]*\s+(?=[\"'(*`\[]*[A-Z`0-9])")
_NO_SUBJECT = re.compile(r"[\"'(*`\[]*(?:What|Who|Nobody|Nothing|Nor|Not|Of|So|Such)\b")
_TEST = re.compile(r"^ *(?:async )?def (test_\w+)", re.MULTILINE)
_TEST_WITHOUT_SUBJECT = re.compile(
    r"test_(?:what|who|whoever|whatever|nobody|nothing|nor|not|of|so|such|it|its|they|there|while|when|where|wherever|if|"
    r"how|why|which)(?:_|$)"
)


def committed_files() -> list[Path]:
    """Every file git tracks, or is about to: staged files count."""
    # A checkout may belong to another user, in a container for example; only its list of names is read.
    command = ["git", "-c", f"safe.directory={ROOT}", "-C", str(ROOT), "ls-files", "-z"]
    listing = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listing.split("\0") if name and (ROOT / name).is_file()]


def findings(text: str) -> list[tuple[int, str, str]]:
    """Line number, what was found, and what is wrong with it."""
    return sorted(
        (text.count("\n", 0, match.start()) + 1, match[0].strip(), why)
        for why, pattern in FORBIDDEN.items()
        for match in pattern.finditer(text)
    )


def without_blocks(text: str) -> list[str]:
    """The lines, with fenced and indented code blanked."""
    lines, fenced, indented, before = [], False, False, ""
    for line in text.split("\n"):
        fence = bool(_FENCE.match(line))
        # In a list an indented line goes on with the item, else it is code after an empty one.
        indented = line.startswith("    ") and not _STARTS.match(line) and (indented or not before.strip())
        lines.append("" if fenced or fence or indented else line)
        fenced = fenced is not fence
        before = line
    return lines


def words_of(text: str) -> int:
    """How many there are; rules of tables and marks of lists are none."""
    return len(re.findall(r"\S*\w\S*", text))


def paragraphs(lines: list[str]) -> Iterator[tuple[int, str]]:
    """(number of its first line, paragraph or list item or heading), tables left out."""
    kept: list[str] = []
    start = 1
    for number, line in enumerate([*lines, ""], 1):
        prose = bool(line.strip()) and not _is_table(line)
        if kept and (not prose or _STARTS.match(line)):
            yield start, "\n".join(kept)
            kept = []
        if prose:
            start = start if kept else number
            kept.append(line)


def _is_table(line: str) -> bool:
    return line.lstrip().startswith("|")


def style(text: str, replaced: re.Pattern[str] | None = None) -> list[tuple[int, str, str]]:
    """As findings(), of a document in Markdown: what makes it hard to read."""
    lines = without_blocks(text)
    found = [
        (number, line[:40], f"{len(line)} characters in a line, {LONGEST_LINE} at most")
        for number, line in enumerate(lines, 1)
        if len(line) > LONGEST_LINE and not _is_table(line)
    ]
    for number, paragraph in paragraphs(lines):
        if (count := words_of(paragraph)) > LONGEST_PARAGRAPH:
            found.append((number, paragraph[:40], f"{count} words in a paragraph, {LONGEST_PARAGRAPH} at most"))
    if replaced is not None:
        found += words("\n".join(lines), replaced)
    return sorted(found)


def prose_of(source: str) -> str:
    """Comments and docstrings of a Python file, each on its line; else nothing but ends of lines."""
    lines = [""] * (source.count("\n") + 2)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT or (token.type == tokenize.STRING and token.string.startswith('"""')):
            for number, line in enumerate(token.string.split("\n"), token.start[0]):
                lines[number] = line
    return "\n".join(lines[1:])


def words(text: str, replaced: re.Pattern[str]) -> list[tuple[int, str, str]]:
    """As findings(): the words that the glossary replaces, code in backquotes left out."""
    prose = _CODE.sub("", text)
    return [
        (prose.count("\n", 0, match.start()) + 1, match[0], f"the word is replaced, see {GLOSSARY}")
        for match in replaced.finditer(prose)
    ]


def sentences(text: str) -> Iterator[tuple[int, str]]:
    """(number of the paragraph's first line, sentence) of a document, headings and tables left out."""
    for number, paragraph in paragraphs(without_blocks(text)):
        if not paragraph.startswith("#"):
            for sentence in _SENTENCE_END.split(" ".join(_STARTS.sub("", paragraph).split())):
                yield number, sentence


def docstring_sentences(source: str) -> Iterator[tuple[int, str]]:
    """As sentences(), of all docstrings of a Python file, those of attributes included."""
    for node in ast.walk(ast.parse(source)):
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                text = child.value.value
                if isinstance(text, str):
                    for number, sentence in sentences(inspect.cleandoc(text)):
                        yield child.lineno + number - 1, sentence


def without_subject(files: list[tuple[str, str]]) -> Iterator[str]:
    """A line for each kind of MOST_WITHOUT_SUBJECT that has too many, then one for each of these."""
    begun: dict[str, list[tuple[str, int, str]]] = {kind: [] for kind in MOST_WITHOUT_SUBJECT}
    for name, text in files:
        if name.endswith(".md"):
            begun["sentences of documents"] += [(name, *each) for each in sentences(text)]
        elif name.startswith("safeproducer/") and name.endswith(".py"):
            begun["sentences of the package"] += [(name, *each) for each in docstring_sentences(text)]
        elif name.endswith(".py"):
            tests = ((text.count("\n", 0, match.start(1)) + 1, match[1]) for match in _TEST.finditer(text))
            begun["names of tests"] += [(name, *each) for each in tests]
    for kind, most in MOST_WITHOUT_SUBJECT.items():
        pattern = _TEST_WITHOUT_SUBJECT if kind == "names of tests" else _NO_SUBJECT
        found = [each for each in begun[kind] if pattern.match(each[2])]
        if (share := 100 * len(found) / max(1, len(begun[kind]))) > most:
            yield f"{share:.1f} % of the {kind} begin without a subject, {most} % at most"
            yield from (f"{name}:{line}: {words[:60]!r}" for name, line, words in found)


def front_page(text: str) -> list[tuple[int, str, str]]:
    """As findings(), of README.md: whether it is still a front page."""
    found = []
    if (count := len(text.splitlines())) > FRONT_PAGE_LINES:
        found.append((count, "", f"{count} lines on the front page, {FRONT_PAGE_LINES} at most"))
    if (count := words_of(text)) > FRONT_PAGE_WORDS:
        found.append((1, "", f"{count} words on the front page, {FRONT_PAGE_WORDS} at most"))
    return found


def replaced_words(glossary: str) -> re.Pattern[str] | None:
    """What finds the words in the first column of the glossary's table of replaced ones; None when it has none."""
    _, _, table = glossary.partition(REPLACED)
    cells = re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)[1:]  # the first is the head of the table
    words = [word.strip() for cell in cells for word in cell.split(",") if word.strip(" -")]
    if not words:
        return None
    each = "|".join(r"\s+".join(map(re.escape, word.split())) for word in words)
    return re.compile(rf"(?<![\w-])(?:{each})(?![\w-])", re.IGNORECASE)


def main() -> int:
    """Check all files; print every finding."""
    failed = False
    texts = []
    glossary = ROOT / GLOSSARY
    replaced = replaced_words(glossary.read_text(encoding="utf-8")) if glossary.exists() else None
    for path in committed_files():
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        name = path.relative_to(ROOT).as_posix()
        texts.append((name, text))
        found = findings(text)
        if path.suffix == ".md":
            found += style(text, None if name == GLOSSARY else replaced)
        if path.suffix == ".py" and replaced is not None:
            found += words(prose_of(text), replaced)
        if name == FRONT_PAGE:
            found += front_page(text)
        for line, what, why in found:
            failed = True
            print(f"{name}:{line}: {what!r}: {why}")
    for finding in without_subject(texts):
        failed = True
        print(finding)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
