"""Reads the pages: their fences, what is to be done with each, their links.

A fence is governed by the HTML comment on the line above it:

    not run: REASON          nothing is executed
    dry run                  servers check and print their configuration, clients check their flags
    run with: FLAGS          lines run one after the other, servers with these flags in addition
    run side by side: FLAGS  the first command is a server, the others are its clients
    run against: ARGUMENTS   the program runs against a server with these arguments
    file: PATH               the fence shows this file, to the letter

A shell fence without a comment runs as it stands.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md")])

SHELL, PYTHON = "bash", "python"
DIRECTIVES = ("not run", "dry run", "run with", "run side by side", "run against", "file")

_FENCE = re.compile(
    r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<body>.*?)^(?P=indent)```$", re.M | re.S
)
_COMMENT = re.compile(r"<!-- (?P<directive>[a-z ]+?)(?:: (?P<argument>.+?))? -->\n *\Z")


@dataclass(frozen=True)
class Fence:
    """One fenced block."""

    page: Path
    line: int
    language: str
    body: str
    directive: str
    """One of ``DIRECTIVES``, or empty."""
    argument: str

    @property
    def place(self) -> str:
        """Page and line, for messages."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    def commands(self) -> list[str]:
        """Return the shell commands: continued lines joined, comments left out."""
        lines = self.body.replace("\\\n", " ").splitlines()
        return [line for line in lines if line.strip() and not line.lstrip().startswith("#")]


def fences(page: Path) -> list[Fence]:
    """Return the fences of a page in order."""
    text = page.read_text("utf-8")
    return [_fence(page, text, match) for match in _FENCE.finditer(text)]


def _fence(page: Path, text: str, match: re.Match[str]) -> Fence:
    comment = _COMMENT.search(text[: match.start()])
    return Fence(
        page=page,
        line=text.count("\n", 0, match.start()) + 1,
        language=match["language"].strip(),
        body=match["body"],
        directive=comment["directive"] if comment else "",
        argument=(comment["argument"] or "") if comment else "",
    )


def without_fences(page: Path) -> str:
    """Return the text of a page without its fences."""
    return _FENCE.sub("", page.read_text("utf-8"))


def heading_anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, spelled as GitHub does."""
    headings = re.findall(r"^#+ (.+)$", without_fences(page), re.M)
    kept = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in kept}
