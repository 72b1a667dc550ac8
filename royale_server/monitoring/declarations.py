"""How to read every key of ``metrics.jsonl``: the union of what is declared beside the code.

Knows no run and computes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from algorithms.metric_spec import MetricSpec
from royale_server.episode_metrics import DECLARED, ENV, SELFPLAY
from royale_server.iteration import CLIENT, HEALTH, RUN, SERVER, TRAFFIC
from royale_server.iteration_clock import THROUGHPUT, TIME, WAITS

GROUPS = (
    "run",
    "throughput",
    "time",
    "policy",
    "env",
    "selfplay",
    "ladder",
    "health",
    "server",
    "client",
)
"""Groups of the server; an algorithm's own is named after it and stands before ``policy``."""

_ROUND = "the round of evaluation that was complete last"


def _of_rounds(
    kind: str, population: str, constant: str, *described: tuple[str, str, str, str]
) -> tuple[MetricSpec, ...]:
    """Declare numbers of rounds: name, unit, meaning, statistic of each."""
    return tuple(
        MetricSpec(
            key=f"env/eval_{name}",
            unit=unit,
            meaning=meaning,
            statistic=statistic,
            population=population,
            absent_when=f"no round {kind}was complete since the row before",
            deterministic=False,
            may_be_constant=constant,
        )
        for name, unit, meaning, statistic in described
    )


EVALUATION = _of_rounds(
    "of evaluation ",
    _ROUND,
    "the policy may not have learnt between two rounds",
    ("round", "1", "Number of the round among those of its kind, from 1 in each attempt.", "last"),
    ("policy_version", "1", "Policy version whose pinned weights played it.", "last"),
)
EVALUATION_BATTLES = _of_rounds(
    "of battles ",
    f"battles of {_ROUND}, every deal from both sides",
    "rounds of few battles often come out alike",
    ("battles", "battle", "Battles of the round.", "sum"),
    ("win_rate", "1", "Battles won by the policy, draws counted as not won.", "ratio"),
    ("win_rate_low", "1", "Lower end of Wilson's 95 % interval of the win rate.", "ratio"),
    ("win_rate_high", "1", "Upper end of Wilson's 95 % interval of the win rate.", "ratio"),
    ("score", "1", "Score of the policy: 1 a win, 1/2 a draw, 0 a loss.", "mean"),
    ("score_low", "1", "Lower end of the 95 % interval of the score, by pairs.", "mean"),
    ("score_high", "1", "Upper end of the 95 % interval of the score, by pairs.", "mean"),
)
EVALUATION_EPISODES = _of_rounds(
    "of episodes ",
    f"whole episodes of {_ROUND}, in which the policy plays alone",
    "a policy that cannot be better returns the same in every episode",
    ("episodes", "episode", "Episodes of the round.", "sum"),
    ("return_mean", "reward", "Undiscounted sum of rewards, mean over episodes.", "mean"),
    ("return_low", "reward", "Lower end of the 95 % interval of the mean return.", "mean"),
    ("return_high", "reward", "Upper end of the 95 % interval of the mean return.", "mean"),
    ("return_min", "reward", "Smallest return of an episode.", "min"),
    ("return_max", "reward", "Largest return of an episode.", "max"),
    ("length_mean", "env step", "Steps from reset to end, mean over episodes.", "mean"),
)

SERVER_METRICS: tuple[MetricSpec, ...] = tuple(
    sorted(
        (
            *RUN,
            *THROUGHPUT,
            *TRAFFIC,
            *TIME,
            *ENV,
            *DECLARED,
            *EVALUATION,
            *EVALUATION_BATTLES,
            *EVALUATION_EPISODES,
            *SELFPLAY,
            *HEALTH,
            *SERVER,
            *CLIENT,
            *WAITS,
        ),
        key=lambda spec: GROUPS.index(spec.group),
    )
)
"""Everything the server writes into a row beside the algorithm's own numbers, group by group."""


class Dictionary(Mapping[str, MetricSpec]):
    """Declarations by key. A family (``ppo/kl_epoch<n>``) is found by any key it stands for.

    Args:
        specs: Declarations, no key twice.
    """

    def __init__(self, specs: Iterable[MetricSpec]) -> None:
        self._specs = {spec.key: spec for spec in specs}
        self._families = [spec for spec in self._specs.values() if spec.is_family]

    def __getitem__(self, key: str) -> MetricSpec:
        return self._specs[key]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)

    def find(self, key: str) -> MetricSpec | None:
        """Return the declaration of a key of a row; None if there is none.

        Where several families fit, the one that says most of the key does: ``env/seat/<n>/…``
        before ``env/<name>``.
        """
        if key in self._specs:
            return self._specs[key]
        fitting = [spec for spec in self._families if spec.matches(key)]
        return max(fitting, key=lambda spec: len(spec.key), default=None)


def declared(learner_metrics: Iterable[MetricSpec]) -> Dictionary:
    """Join the server's declarations with those of an algorithm.

    Args:
        learner_metrics: The algorithm's declarations.

    Returns:
        Key -> declaration, the server's first.

    Raises:
        ValueError: If a key is declared twice, naming all such keys.
    """
    specs = (*SERVER_METRICS, *learner_metrics)
    seen: set[str] = set()
    twice = []
    for spec in specs:
        if spec.key in seen:
            twice.append(spec.key)
        seen.add(spec.key)
    if twice:
        raise ValueError(
            f"metric keys declared twice: {', '.join(twice)}; rename them where the algorithm "
            "declares them"
        )
    return Dictionary(specs)


def deterministic_keys(specs: Dictionary, written: Iterable[str] = ()) -> frozenset[str]:
    """Keys whose numbers must be equal in two runs with the same seed and settings.

    Args:
        specs: Declarations.
        written: Keys that rows have, to know those of families by.
    """
    keys = {key for key, spec in specs.items() if spec.deterministic and not spec.is_family}
    found = ((key, specs.find(key)) for key in written)
    return frozenset(keys | {key for key, spec in found if spec is not None and spec.deterministic})
