"""Contenders that need no process, and benches of them."""

from dataclasses import dataclass, field

from royale_server.bench.plan import Bench, Claim


@dataclass
class Act:
    """Answers what it was told to, one figure after the other."""

    name: str
    answers: list[float]
    peer: str | None = None
    log: list[str] = field(default_factory=list)

    def measure(self, stage, seconds):
        self.log.append(self.name)
        return {"speed": self.answers.pop(0), "seconds": seconds}


def make_bench(*acts, claims=()):
    return Bench(name="acts", title="a title", contenders=acts, claims=claims, shown=("speed",))


def ratio(**settings):
    return Claim(of="a", over="b", figure="speed", **settings)
