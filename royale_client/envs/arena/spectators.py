"""Shows a running battle to people: lines on the terminal, and a page on this machine.

In threads of their own, which read what a `Stage` keeps: stepping waits for none of them, and a
page that nobody looks at costs nothing. Listens on the loopback address only, answers GET only,
and knows no token.
"""

from __future__ import annotations

import json
import logging
import threading
from functools import partial
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, TextIO
from urllib.parse import parse_qs, urlsplit

from royale_client.envs.arena.replay import result_of
from royale_client.envs.arena.replay_views import (
    Commentary,
    end_line,
    frame,
    live_page,
    seats_line,
)
from royale_client.envs.arena.stage import ShownBattle, Stage
from royale_client.envs.arena.state import views_of

logger = logging.getLogger(__name__)

HOST = "127.0.0.1"
LOOK_EVERY_S = 0.25
PAUSE_S = 2.0
"""Between two battles on the terminal, so that fast ones can be read."""
SLOW_READER_S = 5.0
HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; connect-src 'self'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
}


class Teller:
    """Tells a battle line by line while it is played, and then the next one that runs.

    Args:
        stage: Where battles are shown.
        out: Where lines go.
    """

    def __init__(self, stage: Stage, out: TextIO) -> None:
        self._stage = stage
        self._out = out
        self._closed = threading.Event()
        self._number, self._seen = -1, 0
        self._commentary: Commentary | None = None
        self._thread = threading.Thread(target=self._tell, name="teller", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def close(self) -> None:
        """Tell no more."""
        self._closed.set()
        if self._thread.ident is not None:
            self._thread.join()

    def _tell(self) -> None:
        wait_s = LOOK_EVERY_S
        while not self._closed.wait(wait_s):
            wait_s = PAUSE_S if self.tell_news() else LOOK_EVERY_S

    def tell_news(self) -> bool:
        """Write what has happened since the last call; say whether a battle came to its end."""
        news = self._stage.since(self._number, self._seen)
        if news is None or not news.states:
            return False
        states = [views_of(state) for state in news.states]
        lines = []
        if news.number != self._number or self._commentary is None:
            self._number, self._seen = news.number, 0
            self._commentary = Commentary(states.pop(0))
            lines += ["", seats_line(news.players)]
        for battles, pair in zip(states, news.actions, strict=True):
            lines += self._commentary.after(battles, pair)
        self._seen += len(news.states)
        if news.is_over:
            lines.append(end_line(result_of(views_of(news.states[-1]), 0)))
        self._out.writelines(f"{line}\n" for line in lines)
        self._out.flush()
        return news.is_over


class LivePage:
    """Serves the running battle as a page.

    Args:
        stage: Where battles are shown.
        port: TCP port of the loopback address; 0 takes a free one.

    Raises:
        OSError: It cannot listen there.
    """

    def __init__(self, stage: Stage, port: int) -> None:
        self._server = ThreadingHTTPServer((HOST, port), partial(_Handler, stage))
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, name="live page", daemon=True
        )

    @property
    def url(self) -> str:
        """Where the page is."""
        return f"http://{HOST}:{self._server.server_address[1]}/"

    def start(self) -> None:
        """Start answering."""
        self._thread.start()

    def close(self) -> None:
        """Answer no more."""
        if self._thread.ident is not None:
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """One request. GET is all it knows; everything else gets 501 of the base class."""

    timeout = SLOW_READER_S
    server_version = "royale"
    sys_version = ""

    def __init__(self, stage: Stage, *arguments: Any) -> None:  # noqa: ANN401 - as the server calls
        self._stage = stage
        super().__init__(*arguments)

    def do_GET(self) -> None:
        """Answer with the page or with what is new."""
        target = urlsplit(self.path)
        if not self._is_for_here():
            self._answer(HTTPStatus.FORBIDDEN, "text/plain", "this page is for this machine\n")
        elif target.path == "/":
            self._answer(HTTPStatus.OK, "text/html", live_page())
        elif target.path == "/frames":
            self._news(parse_qs(target.query))
        else:
            self._answer(HTTPStatus.NOT_FOUND, "text/plain", "there is nothing here\n")

    def log_message(self, format: str, *args: object) -> None:
        """Log quietly: a page asks four times a second."""
        logger.debug(format, *args)

    def _is_for_here(self) -> bool:
        """Whether the browser means this machine; a foreign name that leads here is no such."""
        host = self.headers.get("Host", "").rpartition(":")[0]
        return host in (HOST, "localhost")

    def _news(self, query: dict[str, list[str]]) -> None:
        try:
            number, count = int(query["battle"][0]), int(query["from"][0])
        except (KeyError, ValueError):
            text = "expected /frames?battle=NUMBER&from=NUMBER\n"
            self._answer(HTTPStatus.BAD_REQUEST, "text/plain", text)
            return
        news = self._stage.since(number, max(0, count))
        body = {"battle": number, "players": ["", ""], "end": "", "frames": []}
        self._answer(
            HTTPStatus.OK,
            "application/json",
            json.dumps(body if news is None else _as_data(news), separators=(",", ":")),
        )

    def _answer(self, status: HTTPStatus, kind: str, text: str) -> None:
        data = text.encode("utf-8")
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _as_data(news: ShownBattle) -> dict[str, Any]:
    states = [views_of(state) for state in news.states]
    return {
        "battle": news.number,
        "players": news.players,
        "end": end_line(result_of(states[-1], 0)) if news.is_over else "",
        "frames": [frame(battles) for battles in states],
    }
