"""Arrays come back with the same values, shapes and dtypes, and shared ones are shared."""

import numpy as np
import pytest
import safetensors.torch
import torch
from torch import nn

from checkpoints import CheckpointContentError, CheckpointContents, copy_contents, load, save
from checkpoints.tensors import parse, plan

TORCH_DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.uint16,
    torch.int32,
    torch.uint32,
    torch.int64,
    torch.uint64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
]


def round_trip(tmp_path, **tensors):
    """Save and load one group of arrays."""
    contents = CheckpointContents(step=1, tensors={"model": tensors})
    return load(save(tmp_path, contents).path).tensors["model"]


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (1,), (0, 3), (2, 3)], ids=str)
def test_every_dtype_and_shape_survives(tmp_path, dtype, shape):
    tensor = torch.arange(6).reshape(2, 3).to(dtype)
    tensor = tensor if shape == (2, 3) else torch.ones(shape).to(dtype)
    loaded = round_trip(tmp_path, x=tensor, other=torch.ones(5))
    assert loaded["x"].dtype == dtype
    assert loaded["x"].shape == shape
    assert torch.equal(loaded["x"], tensor)


def test_bfloat16_keeps_its_bits_and_negative_zero_its_sign(tmp_path):
    # 1 + 2**-7 is the next bfloat16 after 1; 2**-149 is the least float32, a subnormal.
    loaded = round_trip(
        tmp_path,
        b=torch.tensor([1 + 2**-7, -0.0], dtype=torch.bfloat16),
        f=torch.tensor([-0.0, 2.0**-149, float("nan"), float("-inf")]),
    )
    assert loaded["b"].view(torch.int16).tolist() == [0x3F81, -0x8000]
    assert str(loaded["f"].tolist()) == "[-0.0, 1.401298464324817e-45, nan, -inf]"


@pytest.mark.parametrize(
    ("array", "values"),
    [
        (np.asfortranarray([[1, 2], [3, 4]]), [[1, 2], [3, 4]]),
        (np.arange(6)[::2], [0, 2, 4]),
        (np.arange(4)[::-1], [3, 2, 1, 0]),
        (np.broadcast_to(np.array([7.0]), (2, 2)), [[7.0, 7.0], [7.0, 7.0]]),
        (np.array([1.0], dtype=">f4"), [1.0]),
        (np.array([1], dtype=">i4"), [1]),
        (np.array(2.5, dtype=np.float32), 2.5),
        (np.zeros((0, 3), dtype=np.uint16), []),
        (np.array([True, False]), [True, False]),
        (np.arange(8, dtype=np.int64).reshape(2, 2, 2).transpose(2, 0, 1), None),
    ],
)
def test_numpy_arrays_of_any_layout_are_packed(tmp_path, array, values):
    array.flags.writeable = False  # received observations are read-only views
    loaded = round_trip(tmp_path, x=array)["x"]
    assert loaded.shape == array.shape
    assert loaded.tolist() == (array.tolist() if values is None else values)
    assert loaded.is_contiguous()


def test_transposed_and_sliced_tensors_are_packed(tmp_path):
    base = torch.arange(12.0).reshape(3, 4)
    loaded = round_trip(tmp_path, base=base, turned=base.T, column=base[:, 1])
    assert torch.equal(loaded["base"], base)
    assert torch.equal(loaded["turned"], base.T)
    assert loaded["column"].tolist() == [1.0, 5.0, 9.0]


class TiedNet(nn.Module):
    """Two layers that share a weight, and a buffer that is a transposed view."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(3, 3)
        self.b = nn.Linear(3, 3)
        self.b.weight = self.a.weight
        self.register_buffer("turned", torch.arange(6.0).reshape(2, 3).T)


def test_tied_weights_are_stored_once_and_are_one_object_after_loading(tmp_path):
    net = TiedNet()
    path = save(tmp_path, CheckpointContents(step=1, tensors={"model": net.state_dict()})).path
    raw = safetensors.torch.load_file(path / "model.safetensors")
    assert sorted(raw) == ["a.bias", "a.weight", "b.bias", "turned"]

    loaded = load(path).tensors["model"]
    assert loaded["b.weight"] is loaded["a.weight"]
    assert sorted(loaded) == sorted(net.state_dict())
    assert torch.equal(loaded["turned"], net.turned)


def test_a_net_with_tied_weights_trains_on_the_same_after_loading(tmp_path):
    torch.manual_seed(0)
    net, again = TiedNet(), TiedNet()
    path = save(tmp_path, CheckpointContents(step=1, tensors={"model": net.state_dict()})).path
    again.load_state_dict(load(path).tensors["model"])
    assert again.b.weight is again.a.weight
    for one in (net, again):
        optimizer = torch.optim.SGD(one.parameters(), lr=0.1)
        one.b(one.a(torch.ones(2, 3))).square().sum().backward()
        optimizer.step()
    for name, value in net.state_dict().items():
        assert torch.equal(value, again.state_dict()[name]), name


def test_a_copy_has_memory_of_its_own_and_keeps_what_was_shared():
    weight = torch.ones(2, 2)
    view = np.arange(3)
    contents = CheckpointContents(
        step=1,
        tensors={
            "model": {"a": weight, "b": weight.view(2, 2)},
            "rollout": {"x": view, "e": view[:0]},
        },
        documents={"state": {"global_step": 1}},
    )
    copy = copy_contents(contents)
    weight.zero_()
    view[:] = 0
    assert copy.tensors["model"]["a"].tolist() == [[1, 1], [1, 1]]
    assert copy.tensors["model"]["b"] is copy.tensors["model"]["a"]
    assert copy.tensors["rollout"]["x"].tolist() == [0, 1, 2]
    assert copy.tensors["rollout"]["e"].shape == (0,)
    assert copy.documents == contents.documents


def test_parameters_that_require_gradients_are_saved_as_values(tmp_path):
    loaded = round_trip(tmp_path, w=nn.Parameter(torch.ones(2)))
    assert loaded["w"].tolist() == [1.0, 1.0]
    assert not loaded["w"].requires_grad


def test_files_open_in_the_reference_reader_and_have_text_only_metadata(tmp_path):
    tensors = {"one": torch.ones(3, dtype=torch.uint8), "two": torch.ones(2, dtype=torch.float64)}
    path = save(tmp_path, CheckpointContents(step=1, tensors={"model": tensors})).path
    with safetensors.safe_open(path / "model.safetensors", framework="np") as file:
        assert sorted(file.keys()) == ["one", "two"]
        assert file.metadata() == {"format": "pt", "aliases": "{}\n"}
        assert file.get_tensor("two").tolist() == [1.0, 1.0]


def test_a_file_without_arrays_is_readable(tmp_path):
    assert round_trip(tmp_path) == {}


def test_the_bytes_written_do_not_depend_on_the_order_of_names():
    one, two = torch.ones(2), torch.zeros(3, dtype=torch.int8)
    written = [
        b"".join(plan(tensors)._chunks())
        for tensors in ({"a": one, "b": two}, {"b": two, "a": one})
    ]
    assert written[0] == written[1]
    assert sorted(parse(written[0])) == ["a", "b"]


@pytest.mark.parametrize(
    ("array", "says"),
    [
        (np.array([object()], dtype=object), "array of object"),
        (np.array(["text"]), "array of <U4"),
        (np.zeros(1, dtype=[("a", "f4")]), "expected one of"),
        (np.zeros(1, dtype="datetime64[s]"), "array of datetime64"),
        (torch.ones(2, dtype=torch.complex64), "complex64"),
        (torch.ones(2).to_sparse(), "sparse"),
        (torch.ones(2, device="meta"), "on meta"),
        ([1.0, 2.0], "is a list"),
    ],
)
def test_what_has_no_form_in_the_file_is_refused_by_name(tmp_path, array, says):
    contents = CheckpointContents(step=1, tensors={"model": {"good": torch.ones(1), "bad": array}})
    with pytest.raises(CheckpointContentError, match="'bad'") as caught:
        save(tmp_path, contents)
    assert says in str(caught.value)
    assert "model.safetensors" in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_the_name_reserved_by_the_format_is_refused(tmp_path):
    with pytest.raises(CheckpointContentError, match="__metadata__"):
        round_trip(tmp_path, __metadata__=torch.ones(1))
