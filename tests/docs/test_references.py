"""What the pages name exists, from links to messages, and generated pages are current."""

from __future__ import annotations

import argparse
import contextlib
import io
import re
from collections.abc import Iterator

import pytest

from royale_client.conformance.cli import main as grade
from royale_server.tools.main import make_parser
from tests.docs import reference_pages
from tests.docs.pages import PAGES, ROOT, fences, heading_anchors, without_fences

PACKAGES = ("royale_server", "royale_client", "algorithms", "checkpoints")
PROTOCOL = ROOT / "docs" / "protocol.md"
OURS = [page for page in PAGES if page != PROTOCOL]

LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`([^`\n]+)`")
FILE = re.compile(r"(?:[\w.-]+/)+[\w.-]+\.(?:py|md|toml|txt|json|jsonl)|[\w-]+\.(?:py|md|toml)")
MODULE = re.compile(rf"(?:{'|'.join(PACKAGES)})(?:\.\w+)+")
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9.-]*[a-z0-9]")

# Of x.py, and a misspelt one that the troubleshooting page shows.
FLAGS_OF_OTHERS = {"--learning", "--chaos", "--minutes", "--clip-coef"}
SHORTEST_TOLD_FRAGMENT = 8


def name(page) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_internal_links_lead_somewhere(page):
    links = [link for link in LINK.findall(without_fences(page)) if "://" not in link]
    broken = [link for link in links if not leads_somewhere(page, link)]
    assert broken == []


def leads_somewhere(page, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    if not target.exists() or not target.is_relative_to(ROOT):
        return False
    return not anchor or anchor in heading_anchors(target)


@pytest.mark.parametrize("page", OURS, ids=name)
def test_files_named_in_the_text_exist(page):
    named = {path for code in CODE.findall(without_fences(page)) for path in FILE.findall(code)}
    places = (ROOT, page.parent, ROOT / "docs")
    of_runs = {"run.json", "config.json", "identity.json", "my_policy.py", "plugins/my_policy.py"}
    missing = [p for p in named - of_runs if not any((place / p).exists() for place in places)]
    assert missing == []


@pytest.mark.parametrize("page", OURS, ids=name)
def test_modules_named_in_the_text_exist(page):
    named = {m for code in CODE.findall(without_fences(page)) for m in MODULE.findall(code)}
    missing = [module for module in named if not is_module(module)]
    assert missing == []


def is_module(dotted: str) -> bool:
    path = ROOT.joinpath(*dotted.split("."))
    return path.is_dir() or path.with_suffix(".py").is_file()


@pytest.mark.parametrize("page", OURS, ids=name)
def test_flags_named_anywhere_exist(page):
    text = page.read_text("utf-8")
    known = known_flags()
    unknown = {flag for flag in FLAG.findall(text) if flag not in known and not is_prefix(flag)}
    assert unknown == set()


def is_prefix(flag: str) -> bool:
    """``--policy.*`` and the like."""
    return flag in ("--policy", "--algo", "--flags", "--token")


def known_flags() -> set[str]:
    generated = (ROOT / "docs" / "configuration.md").read_text("utf-8")
    listed = set(re.findall(r"^\| `(--[^`]+)`", generated, re.M))
    switched_off = {re.sub(r"(--(?:\w+\.)?)(.+)", r"\1no-\2", flag) for flag in listed}
    of_examples = {"--policy.init-scale"}
    of_tool = flags_of_tool()
    others = FLAGS_OF_OTHERS | flags_of_conformance() | flags_of_node_client()
    return listed | switched_off | of_tool | of_examples | others


def flags_of_tool() -> set[str]:
    """Return the flags of every subcommand of ``royale``, and of the command itself."""
    return set(flags_of_parser(make_parser()))


def flags_of_parser(parser: argparse.ArgumentParser) -> Iterator[str]:
    for action in parser._actions:
        yield from action.option_strings
        if isinstance(action, argparse._SubParsersAction):
            for subparser in action.choices.values():
                yield from flags_of_parser(subparser)


def flags_of_conformance() -> set[str]:
    """Return the flags of both subcommands of the conformance suite."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        for peer in ("client", "server"):
            assert grade([peer, "--help"]) == 0
    return set(re.findall(r"^  (--[\w-]+)", shown.getvalue(), re.M))


def flags_of_node_client() -> set[str]:
    """Return the flags that the usage of the client in JavaScript tells."""
    source = (ROOT / "docs" / "examples" / "node" / "client.mjs").read_text("utf-8")
    return set(FLAG.findall(source[source.index("const USAGE") :].partition("`;")[0]))


def test_troubleshooting_quotes_messages_that_the_code_has():
    source = joined_source()
    unknown = [
        fragment for fragment in told_fragments() if " ".join(fragment.split()) not in source
    ]
    assert unknown == []


def told_fragments() -> Iterator[str]:
    """Yield the fixed parts of every message in the first column of the tables."""
    page = ROOT / "docs" / "troubleshooting.md"
    for row in re.findall(r"^\| (`[^|]+) \|", page.read_text("utf-8"), re.M):
        for message in CODE.findall(row):
            parts = [part.strip(" :;,.(") for part in message.split("…")]
            yield from (part for part in parts if len(part) >= SHORTEST_TOLD_FRAGMENT)


def joined_source() -> str:
    """Return the source with adjacent pieces of text joined and placeholders left out."""
    texts = [p.read_text("utf-8") for package in PACKAGES for p in (ROOT / package).rglob("*.py")]
    joined = re.sub(r"[\"']\s*\n\s*f?[\"']", "", "\n".join(texts))
    return re.sub(r"\s+", " ", joined)


@pytest.mark.parametrize("page", reference_pages.PAGES)
def test_generated_page_is_current(page):
    made = reference_pages.PAGES[page]()
    written = (ROOT / "docs" / page).read_text("utf-8")
    assert made == written, "run: python tests/docs/reference_pages.py"


def test_every_page_is_reachable_from_the_index():
    index = (ROOT / "docs" / "index.md").read_text("utf-8")
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "index.md"]
    missing = [
        str(p.relative_to(ROOT / "docs"))
        for p in pages
        if f"({p.relative_to(ROOT / 'docs')})" not in index
    ]
    assert missing == []


def test_decisions_have_all_their_parts():
    parts = ("Status:", "## Context", "## Decision", "## Consequences", "## Alternatives refused")
    for page in (ROOT / "docs" / "decisions").glob("*.md"):
        text = page.read_text("utf-8")
        assert text.startswith(f"# {page.name[:4]} · "), page.name
        assert all(part in text for part in parts), page.name


def test_pages_speak_of_no_machine_of_their_authors():
    forbidden = re.compile(r"/work/|/home/|/root/|/tmp/|localhost:\d")
    found = [name(p) for p in PAGES if forbidden.search(p.read_text("utf-8"))]
    assert found == []


def test_no_fence_is_left_open():
    for page in PAGES:
        marks = re.findall(r"^ *```", page.read_text("utf-8"), re.M)
        assert len(marks) == 2 * len(fences(page)), name(page)
