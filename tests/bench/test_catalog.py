"""The table is consistent, and what it starts is what the programs understand."""

from collections.abc import Iterator

import pytest

from royale_client.cli import parse_flags
from royale_client.envs.registry import find_provider
from royale_server.bench.catalog import BENCHES, by_name
from royale_server.bench.peers import PEERS, split
from royale_server.bench.product import Product
from royale_server.bench.yardsticks import Yardstick
from royale_server.builtin_components import builtin_registry
from royale_server.cli import read_command
from tests.bench.acts import Act


def all_contenders() -> Iterator[object]:
    return (contender for bench in BENCHES for contender in bench.contenders)


PRODUCTS = {
    (c.pair, c.client, *(word for word in c.flags if word.startswith("--"))): c
    for c in all_contenders()
    if isinstance(c, Product)
}
"""One of each set of flags."""


def test_names_are_unique():
    assert len(by_name()) == len(BENCHES)
    for bench in BENCHES:
        assert len({c.name for c in bench.contenders}) == len(bench.contenders)


@pytest.mark.parametrize("bench", BENCHES, ids=lambda bench: bench.name)
def test_claims_are_about_contenders_of_their_bench(bench):
    names = {contender.name for contender in bench.contenders}
    for claim in bench.claims:
        assert claim.of in names
        assert claim.over is None or claim.over in names
        if claim.aim is not None:
            assert claim.holds(claim.aim)


def test_every_peer_is_known():
    assert {c.peer for c in all_contenders()} - {None} == set(PEERS)
    assert all(c.task == c.peer for c in all_contenders() if isinstance(c, Yardstick) and c.peer)


@pytest.mark.parametrize("product", PRODUCTS.values(), ids=lambda p: f"{p.clients}x{p.envs}")
def test_the_server_and_the_client_understand_their_flags(product):
    command = read_command([*product.pair, *product.flags], builtin_registry())
    assert command.config.algo.frames_per_iteration > 0
    provider = find_provider(product.client[0])
    parse_flags(provider, [*product.client[1:], "--num-envs", str(product.envs)])


def test_peers_are_left_out_with_the_reason():
    here, gone, unwanted = Act("x", []), Act("SB3", [], peer="sb3"), Act("R", [], peer="rllib")
    present, left_out = split([here, gone, unwanted], {"sb3": None})
    assert present == [here]
    assert left_out[0].startswith("SB3: not installed: pip install")
    assert left_out[1] == "R: only with --peers"
    assert split([here, gone], {"sb3": "2.9.2"})[0] == [here, gone]
