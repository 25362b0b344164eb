"""The rules for the repository: sizes, twin test files, names in one place, nothing of one machine.

Each failure lists all violations.
"""

import ast
import gc
import io
import re
import subprocess
import tokenize
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path

import pytest

from amqp_streams import names

ROOT = Path(__file__).parent.parent
PACKAGES = (
    "amqp_streams",
    "event_formats",
    "knative_gateway",
    "pyspark_amqpstreams",
    "service_parts",
    "spark_connector",
    "web_console",
)
MODULE_LINES_MAX = 460
TEST_LINES_MAX = 450
FUNCTION_LINES_MAX = 60
FOLDER_FILES_MAX = 16
PAGE_WIDTH_MAX = 110
PURE = (
    "amqp_streams.wire",
    "amqp_streams.streams",
    "amqp_streams.kafka",
    "amqp_streams.storage",
    "amqp_streams.node",
    "amqp_streams.homes",
)
# Values and re-exports: their users' tests are theirs.
WITHOUT_TWIN = {
    "amqp_streams/names.py",
    "amqp_streams/errors.py",
    "amqp_streams/storage/findings.py",
    "amqp_streams/homes/messages.py",
}
_CONDITION = re.compile(r"amqp:[a-z]")
_WIRE_NAMES = {
    value for value in vars(names).values() if isinstance(value, str) and re.search(r"[-:$@/]", value)
}
_WIRE_NAMES -= {
    names.INFO_RETENTION_MS,
    names.INFO_RETENTION_BYTES,
}  # settings: named like their neighbours where they are read
# Written so that this file does not offend itself.
_MACHINES = re.compile(
    r"(?<![\w.])/(?:wor[k]|roo[t]|hom[e]|User[s])/|\.\./share[d]|registry\.npm[j]s"
    r"|py[p]i\.org|repo\.mave[n]|proxy\.golan[g]"
)
_NAMES_THE_WORDS = {
    "docs/glossary.md",  # lists the words
    "docs/index.md",  # has the titles of decision records, which are not changed later
}
_PAGES = {"CHANGELOG.md", "CONTRIBUTING.md", "README.md", "SECURITY.md", "docs"}
_AVOIDED = re.compile(
    r"\b(?:whoever|whomever|somebody|nobody|anybody|strangers?|errands?|couriers?|mend(?:s|ed|ing)?|crowds?"
    r"|for ever|goes on|gone on|made anew|tried again|passed over|under way|on its way|found out|beside"
    r"|told|there (?:is|are) none|(?:is|are|was|were) no (?!longer|more|less|later|larger|other|fewer)\w+)\b",
    re.IGNORECASE,
)
_UNBREAKABLE = re.compile(r" *(?:\||- \[[^]]*\]\([^)]*\)$|\(?`[^` ]*`[).]*$)")
_UNFINISHED = re.compile(r"\b(?:TOD[O]|FIXM[E]|XX[X])\b")


@pytest.fixture(autouse=True, scope="module")
def _uncollected() -> Iterator[None]:
    """The trees of all files are millions of objects: looking for garbage among them takes longer than making
    them.
    """
    gc.disable()
    yield
    for kept in (text, tree, strings):
        kept.cache_clear()
    gc.enable()


def tracked(*suffixes: str) -> list[Path]:
    """The repository's files, as names below its root."""
    return [path for path in listed() if not suffixes or path.suffix in suffixes]


@cache
def listed() -> list[Path]:
    return [path for path in git_files() if (ROOT / path).is_file()]


def git_files() -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("this is not a git checkout")
    answer = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    return [Path(line) for line in answer.stdout.splitlines()]


def modules() -> list[Path]:
    """Return the modules of the packages."""
    return [path for path in tracked(".py") if path.parts[0] in PACKAGES]


@cache
def text(path: Path) -> str:
    return (ROOT / path).read_text(encoding="utf-8")


@cache
def tree(source: str) -> ast.Module:
    return ast.parse(source)


def test_no_module_is_longer_than_can_be_kept_in_mind() -> None:
    long = {
        str(path): lines
        for path in tracked(".py")
        if (lines := text(path).count("\n"))
        > (TEST_LINES_MAX if path.parts[0] == "tests" else MODULE_LINES_MAX)
    }
    assert not long


def test_no_function_is_longer_than_a_screen() -> None:
    long = {
        f"{path}:{name}": lines
        for path in tracked(".py")
        for name, lines in functions(text(path))
        if lines > FUNCTION_LINES_MAX
    }
    assert not long


def test_no_folder_has_more_files_than_a_reader_takes_in() -> None:
    """More files side by side need folders that name what belongs together."""
    sizes = Counter(str(path.parent) for path in modules())
    assert not {folder: count for folder, count in sizes.items() if count > FOLDER_FILES_MAX}


def functions(source: str) -> Iterator[tuple[str, int]]:
    """Each function and its length: of the body, docstring not counted."""
    for node in statements(tree(source).body):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            if body:
                yield node.name, (node.body[-1].end_lineno or 0) - body[0].lineno + 1


def statements(body: Sequence[ast.stmt]) -> Iterator[ast.stmt]:
    """All statements, at any depth. `ast.walk` visits expressions as well, which takes ten times as long."""
    for statement in body:
        yield statement
        for part in ("body", "orelse", "finalbody"):
            yield from statements(getattr(statement, part, ()))
        for part in ("handlers", "cases"):
            for each in getattr(statement, part, ()):
                yield from statements(each.body)


def test_every_module_says_first_what_it_is() -> None:
    assert not [
        str(path) for path in modules() if text(path).strip() and not ast.get_docstring(tree(text(path)))
    ]


def test_every_core_module_has_a_test_file_of_its_own() -> None:
    core = [path for path in modules() if is_core(path) and str(path) not in WITHOUT_TWIN]
    assert len(core) > 20
    twins = {path: Path("tests") / path.parent / f"test_{path.name}" for path in core}
    assert not [str(path) for path, twin in twins.items() if not (ROOT / twin).exists()]


def is_core(path: Path) -> bool:
    """Return whether the module takes and returns values only.

    A module that does I/O has [io] in its first line. All of service_parts counts as core.
    """
    if path.name == "__init__.py" or path.parts[0] not in {"amqp_streams", "service_parts"}:
        return False
    if path.parts[0] == "service_parts":
        return True
    package = ".".join(path.parent.parts)
    return (len(path.parts) == 2 or package.startswith(PURE)) and "[io]" not in text(path).split("\n", 1)[0]


def test_names_of_the_wire_are_written_once() -> None:
    """Every other module takes them from names.py; words for people may mention them in passing."""
    offending = [
        f"{path}:{line}: {value!r}"
        for path in modules()
        if path.parts[0] == "amqp_streams" and path.name != "names.py"
        for line, value in string_literals(text(path))
        if value in _WIRE_NAMES or (_CONDITION.match(value) and " " not in value)
    ]
    assert not offending


def string_literals(source: str) -> Iterator[tuple[int, str]]:
    """Strings of the code; docstrings are strings that stand alone."""
    alone = {id(node.value) for node in statements(tree(source).body) if isinstance(node, ast.Expr)}
    for node in strings(source):
        if id(node) not in alone:
            yield node.lineno, str(node.value)


@cache
def strings(source: str) -> list[ast.Constant]:
    return [
        node
        for node in ast.walk(tree(source))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_nothing_is_told_of_the_machine_it_was_written_on() -> None:
    offending = [
        f"{path}:{number}: {line.strip()[:100]}"
        for path in tracked(
            ".py", ".md", ".toml", ".txt", ".sh", ".yml", ".mjs", ".go", ".mod", ".java", ".xml", ".c", ""
        )
        for number, line in enumerate(text(path).splitlines(), 1)
        if _MACHINES.search(line)
    ]
    assert not offending


def test_the_repository_has_no_links() -> None:
    """A link to a folder of one machine stops the installation on every other machine."""
    assert [path for path in git_files() if (ROOT / path).is_symlink()] == []


def test_the_changelog_has_each_section_and_each_line_once() -> None:
    """A rebase of two branches that both change it may keep a section twice."""
    sections = (ROOT / "CHANGELOG.md").read_text().split("\n## ")[1:]
    lines = [
        (section.split("\n")[0], line)
        for section in sections
        for line in section.split("\n")
        if line.startswith(("### ", "- "))
    ]
    assert [line for line, count in Counter(lines).items() if count > 1] == []


def test_pages_are_wrapped() -> None:
    """Rows of tables and lines with a single link cannot be wrapped."""
    long = [
        f"{path}:{number}: {len(line)} characters"
        for path in tracked(".md")
        for number, line in enumerate(text(path).splitlines(), 1)
        if len(line) > PAGE_WIDTH_MAX and not _UNBREAKABLE.match(line)
    ]
    assert not long


def test_nothing_is_left_unfinished() -> None:
    assert not [
        str(path) for path in tracked(".py", ".sh", ".mjs", ".go", ".java") if _UNFINISHED.search(text(path))
    ]


def test_nothing_is_defined_that_nobody_uses() -> None:
    """A name that stands once, in all code and tests, is left over."""
    words = Counter(word for path in tracked(".py", ".toml") for word in re.findall(r"\w+", text(path)))
    engine = [path for path in modules() if path.parts[0] == "amqp_streams"]
    assert not [f"{path}: {name}" for path in engine for name in defined(text(path)) if words[name] == 1]


def defined(source: str) -> Iterator[str]:
    """The names that a module binds at its top."""
    for node in tree(source).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                yield name
            case ast.AnnAssign(target=ast.Name(id=name)) | ast.Assign(targets=[ast.Name(id=name)]):
                yield name


def test_test_names_are_sentences() -> None:
    """A name of one word describes nothing. A subject and a verb are the minimum."""
    short = [
        f"{path}:{name}"
        for path in tracked(".py")
        if path.parts[0] == "tests" and path.name.startswith("test_")
        for name in re.findall(r"^ *(?:async )?def (test_\w+)", text(path), re.MULTILINE)
        if name.count("_") < 2
    ]
    assert not short


def test_texts_use_the_words_of_the_glossary() -> None:
    """Docstrings, comments and messages of production code, and the pages.

    The patterns are those words of docs/glossary.md, "Words that are not used", that are wrong in every
    context. Decision records are history, and the glossary lists the words itself.
    """
    texts = [(path, line, words) for path in modules() for line, words in texts_of(text(path))]
    texts += [
        (path, line, words)
        for path in tracked(".md")
        if path.parts[0] in _PAGES and "decisions" not in path.parts
        for line, words in enumerate(text(path).splitlines(), 1)
    ]
    assert len(texts) > 1000
    assert not [
        f"{path}:{line}: {found[0]!r}"
        for path, line, words in texts
        if str(path) not in _NAMES_THE_WORDS
        for found in _AVOIDED.finditer(words)
    ]


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Strings and comments: names of the code are not looked at. Comments only if any could be wrong, because
    reading them takes long.
    """
    for node in strings(source):
        yield node.lineno, str(node.value)
    if not _AVOIDED.search(source):
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
