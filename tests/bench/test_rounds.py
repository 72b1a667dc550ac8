"""Who is measured when."""

from royale_server.bench.rounds import measure
from royale_server.bench.stage import Stage
from tests.bench.acts import Act, make_bench


def test_contenders_run_in_turn_round_after_round(tmp_path):
    log, said = [], []
    acts = [Act("a", [1.0, 2.0, 3.0], log=log), Act("b", [4.0, 5.0, 6.0], log=log)]
    bench = make_bench(*acts)
    samples = measure(bench, acts, Stage(tmp_path), rounds=3, seconds=0.5, say=said.append)
    assert log == ["a", "b"] * 3
    assert [row["speed"] for row in samples["a"]] == [1.0, 2.0, 3.0]
    assert samples["b"][0]["seconds"] == 0.5
    assert len(said) == 6
    assert said[0].startswith("acts 1/3: a: speed 1")


def test_every_turn_has_a_folder_of_its_own(tmp_path):
    acts = [Act("a", [1.0, 2.0])]
    measure(make_bench(*acts), acts, Stage(tmp_path), rounds=2, seconds=1, say=lambda _: None)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["turn-1", "turn-2"]
