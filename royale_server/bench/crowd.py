"""The product with many clients that cost nothing: does its cost grow with anything but frames?

One process plays all clients, and there is no model. What the server uses of the processor tells
more than rates here, since the process that plays the clients may be slower than the server.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass

from royale_server.bench.plan import Figures
from royale_server.bench.product import Product
from royale_server.bench.stage import Stage

ANSWERED = "answered.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Crowd(Product):
    """A server with ``clients`` connections of ``envs`` slots each."""

    def measure(self, stage: Stage, seconds: float) -> Figures:
        """Run once; see `Contender.measure`."""
        figures = Product.measure(self, stage, seconds)
        answered: Figures = json.loads((stage.folder / ANSWERED).read_text("utf-8"))
        return {**figures, **answered}

    def start_clients(self, stage: Stage, url: str) -> None:
        """Start the one process that plays them all."""
        options = {
            "url": url,
            "clients": self.clients,
            "slots": self.envs,
            "answered": str(stage.folder / ANSWERED),
        }
        words = [sys.executable, "-m", "royale_server.bench.worker", "many_clients"]
        stage.start([*words, str(stage.folder / "crowd.json"), json.dumps(options)], "crowd")
