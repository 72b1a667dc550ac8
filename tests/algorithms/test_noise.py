"""Keyed noise: addressing, ranges, and the statistics of neighbouring addresses."""

import math
import subprocess
import sys

import numpy as np
import pytest

from algorithms.noise import FIRST_FREE_PURPOSE, Noise, Purpose, slot_key

MASK = (1 << 64) - 1
METHODS = ("bits", "uniform", "gumbel", "normal")


def make_noise(num_rows=1, *, key=None, episode=0, first_step=0):
    """Rows of one slot at consecutive steps."""
    key = slot_key(7, "client", 0) if key is None else key
    return Noise(
        np.full(num_rows, key, np.uint64),
        np.full(num_rows, episode, np.uint64),
        np.arange(first_step, first_step + num_rows, dtype=np.uint64),
    )


def chi_square(counts):
    expected = counts.sum() / counts.size
    return float(((counts - expected) ** 2).sum() / expected)


def chi_square_limit(num_cells):
    """Mean plus five standard deviations of chi-square with num_cells - 1 degrees of freedom."""
    return (num_cells - 1) + 5.0 * math.sqrt(2.0 * (num_cells - 1))


def kolmogorov_smirnov(samples, cdf):
    """Greatest distance between empirical and true distribution, times sqrt(n)."""
    samples = np.sort(samples)
    n = len(samples)
    true = np.array([cdf(x) for x in samples])
    above = np.arange(1, n + 1) / n - true
    below = true - np.arange(n) / n
    return max(above.max(), below.max()) * math.sqrt(n)


def scalar_bits(key, episode, step, purpose, lane):
    """The definition, written a second time with Python integers."""
    row = (episode * 0xD1342543DE82EF95 + key) & MASK
    row ^= row >> 32
    row = (row * 0xF1357AEA2E62A9C5) & MASK
    row = (row + step * 0xAEF17502108EF2D9) & MASK
    x = (row + ((purpose << 32) + lane + 1) * 0x9E3779B97F4A7C15) & MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & MASK
    return x ^ (x >> 31)


def test_bits_follow_the_written_definition_for_small_and_huge_addresses():
    keys = [0, 1, MASK, 0x0123456789ABCDEF]
    episodes = [0, 3, MASK, 1 << 40]
    steps = [0, 5, MASK, 1 << 50]
    noise = Noise(*(np.array(column, np.uint64) for column in (keys, episodes, steps)))

    got = noise.bits(FIRST_FREE_PURPOSE, 3)

    for row, address in enumerate(zip(keys, episodes, steps, strict=True)):
        for lane in range(3):
            assert int(got[row, lane]) == scalar_bits(*address, FIRST_FREE_PURPOSE, lane)


@pytest.mark.parametrize("method", METHODS)
def test_a_row_gets_the_same_numbers_alone_and_in_any_batch(method):
    batch = make_noise(33)
    whole = getattr(batch, method)(Purpose.ACTION, 3)
    for start in range(33):
        for end in (start + 1, min(start + 7, 33), 33):
            part = Noise(batch.keys[start:end], batch.episodes[start:end], batch.steps[start:end])
            assert np.array_equal(getattr(part, method)(Purpose.ACTION, 3), whole[start:end])


@pytest.mark.parametrize("method", METHODS)
def test_a_lane_does_not_depend_on_how_many_lanes_are_asked_for(method):
    noise = make_noise(5)
    whole = getattr(noise, method)(Purpose.ACTION, 9)
    for lanes in range(9):
        assert np.array_equal(getattr(noise, method)(Purpose.ACTION, lanes), whole[:, :lanes])


@pytest.mark.parametrize("method", METHODS)
def test_an_empty_batch_and_no_lanes_are_fine(method):
    assert getattr(make_noise(0), method)(Purpose.ACTION, 4).shape == (0, 4)
    assert getattr(make_noise(3), method)(Purpose.ACTION, 0).shape == (3, 0)


def test_drawing_leaves_the_addresses_alone_and_repeats():
    noise = make_noise(4, episode=2, first_step=9)
    first = noise.normal(Purpose.ACTION, 2)
    assert np.array_equal(noise.normal(Purpose.ACTION, 2), first)
    assert noise.steps.tolist() == [9, 10, 11, 12]
    assert noise.episodes.tolist() == [2, 2, 2, 2]


def test_slot_keys_differ_by_seed_name_and_slot_and_names_cannot_imitate_slots():
    keys = {
        int(slot_key(seed, name, slot))
        for seed in (0, 1, -1, 1 << 70)
        for name in ("a", "b", "a1", "1a", "", "a\x00", "ü")
        for slot in (0, 1, 10, 100)
    }
    assert len(keys) == 4 * 7 * 4


def test_slot_key_is_the_same_in_every_process():
    # blake2b(b"0\0" b"3\0" b"alpha", digest_size=8, person=b"royale-noise"), little-endian.
    assert int(slot_key(0, "alpha", 3)) == 0xA18151446FE9097B


def test_uniform_numbers_stay_strictly_inside_at_both_extremes():
    class Extreme(Noise):
        def bits(self, purpose, lanes):
            return np.array([[0, MASK]], np.uint64)

    noise = Extreme(*(np.zeros(1, np.uint64),) * 3)
    # 52 zero bits are the middle of the lowest of 2**52 intervals, 52 one bits of the highest.
    assert noise.uniform(0, 2).tolist() == [[2.0**-53, 1.0 - 2.0**-53]]
    # -log(53 log 2) = -3.6038, and -log(2**-53) = 53 log 2 = 36.7368.
    assert noise.gumbel(0, 2)[0] == pytest.approx([-3.60377, 36.73680], abs=1e-5)
    # sqrt(2 * 53 log 2) = 8.5716 at an angle of just under a full turn.
    assert noise.normal(0, 2)[0] == pytest.approx([8.5716, 0.0], abs=1e-3)


@pytest.mark.parametrize("num_bins", [2, 64, 1021])
def test_uniform_numbers_fill_all_bins_alike(num_bins):
    u = make_noise(25_000).uniform(Purpose.ACTION, 4).ravel()
    counts = np.bincount((u * num_bins).astype(int), minlength=num_bins)
    assert chi_square(counts) < chi_square_limit(num_bins)


def test_every_single_bit_is_fair():
    x = make_noise(10_000).bits(Purpose.ACTION, 4).ravel()
    ones = [int((x >> np.uint64(bit) & np.uint64(1)).sum()) for bit in range(64)]
    # 40,000 fair coins: 20,000 heads, standard deviation 100.
    assert max(abs(n - 20_000) for n in ones) < 450


def neighbours(axis, num=100_000):
    """Two columns of uniform numbers whose addresses differ by one in a single part."""
    steps = np.arange(num, dtype=np.uint64)
    keys = np.full(num, slot_key(0, "client", 0), np.uint64)
    episodes = np.zeros(num, np.uint64)
    first = Noise(keys, episodes, steps)
    match axis:
        case "lane":
            both = first.uniform(Purpose.ACTION, 2)
            return both[:, 0], both[:, 1]
        case "step":
            second = Noise(keys, episodes, steps + np.uint64(1))
        case "episode":
            second = Noise(keys, episodes + np.uint64(1), steps)
        case "slot":
            second = Noise(np.full(num, slot_key(0, "client", 1), np.uint64), episodes, steps)
        case "seed":
            second = Noise(np.full(num, slot_key(1, "client", 0), np.uint64), episodes, steps)
        case "key":
            second = Noise(keys + np.uint64(1), episodes, steps)
        case "purpose":
            return (
                first.uniform(Purpose.ACTION, 1)[:, 0],
                first.uniform(Purpose.EXPLORE, 1)[:, 0],
            )
    return first.uniform(Purpose.ACTION, 1)[:, 0], second.uniform(Purpose.ACTION, 1)[:, 0]


@pytest.mark.parametrize("axis", ["lane", "step", "episode", "slot", "seed", "key", "purpose"])
def test_neighbouring_addresses_are_independent(axis):
    a, b = neighbours(axis)
    cells = (a * 32).astype(int) * 32 + (b * 32).astype(int)
    counts = np.bincount(cells, minlength=1024)
    assert chi_square(counts) < chi_square_limit(1024)
    # The correlation of 100,000 independent pairs has a standard deviation of 0.0032.
    assert abs(np.corrcoef(a, b)[0, 1]) < 0.015


@pytest.mark.parametrize("column", ["keys", "episodes", "steps"])
def test_flipping_one_bit_of_an_address_flips_half_of_the_bits(column):
    noise = make_noise(500)
    for bit in range(0, 64, 7):
        parts = {name: getattr(noise, name) for name in ("keys", "episodes", "steps")}
        parts[column] = parts[column] ^ np.uint64(1 << bit)
        changed = noise.bits(Purpose.ACTION, 1) ^ Noise(**parts).bits(Purpose.ACTION, 1)
        share = np.unpackbits(changed.view(np.uint8)).mean()
        # 32,000 coins: standard deviation 0.0028.
        assert share == pytest.approx(0.5, abs=0.015), f"bit {bit}"


def test_short_episodes_of_many_slots_are_uniform_and_never_repeat():
    # What a run really reads: few steps of few episodes of many slots, two lanes each.
    slots, episodes, steps = 256, 20, 20
    keys = np.array([slot_key(0, "client", slot) for slot in range(slots)])
    grid = np.meshgrid(np.arange(episodes), np.arange(steps), indexing="ij")
    noise = Noise(
        np.repeat(keys, episodes * steps),
        np.tile(grid[0].ravel(), slots).astype(np.uint64),
        np.tile(grid[1].ravel(), slots).astype(np.uint64),
    )
    bits = noise.bits(Purpose.ACTION, 2).ravel()
    assert len(np.unique(bits)) == len(bits)
    u = noise.uniform(Purpose.ACTION, 2).ravel()
    assert chi_square(np.bincount((u * 512).astype(int), minlength=512)) < chi_square_limit(512)


def test_normal_numbers_follow_the_normal_distribution():
    z = make_noise(10_000).normal(Purpose.ACTION, 3).ravel()
    # Exceeded by a true sample with probability 6e-4.
    assert kolmogorov_smirnov(z, lambda x: 0.5 * (1 + math.erf(x / math.sqrt(2)))) < 1.95
    both = make_noise(50_000).normal(Purpose.ACTION, 2)
    # The two numbers of a Box-Muller pair: uncorrelated, and so are their squares.
    assert abs(np.corrcoef(both.T)[0, 1]) < 0.02
    assert abs(np.corrcoef((both**2).T)[0, 1]) < 0.02


def test_gumbel_numbers_follow_the_gumbel_distribution():
    g = make_noise(10_000).gumbel(Purpose.ACTION, 3).ravel()
    assert kolmogorov_smirnov(g, lambda x: math.exp(-math.exp(-x))) < 1.95


@pytest.mark.parametrize(
    ("purpose", "lanes", "named"), [(-1, 1, "purpose"), (65_536, 1, "purpose"), (1, -1, "lanes")]
)
def test_purposes_and_lanes_out_of_range_are_refused(purpose, lanes, named):
    with pytest.raises(ValueError, match=named):
        make_noise().bits(purpose, lanes)


def test_columns_of_another_length_or_dtype_are_refused():
    u, i = np.zeros(2, np.uint64), np.zeros(2, np.int64)
    with pytest.raises(ValueError, match="uint64"):
        Noise(u, u, i)
    with pytest.raises(ValueError, match=r"\(n,\)"):
        Noise(u, u[:1], u)


def test_the_array_modules_import_no_torch():
    names = ("noise", "storage", "sequences", "normalization", "schedules", "metric_spec", "spaces")
    modules = ", ".join(f"algorithms.{name}" for name in names)
    script = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0
