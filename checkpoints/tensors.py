"""Named arrays as one safetensors file, and back.

Arrays of any stride, byte order or memory order are packed on the way out; names that share one
array are written once and come back as one object. (Views that merely overlap are written each on
their own.) Streams: nothing but the array being packed is copied. Never unpickles, never guesses a
dtype, never changes a value.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, BinaryIO, TypeAlias

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors import torch as safetensors_torch

from checkpoints.contents import Array, CheckpointContents, Tensors
from checkpoints.documents import DocumentError, decode, encode

_CHUNK_BYTES = 4 << 20
_ALIASES = "aliases"
_METADATA = "__metadata__"

_Identity: TypeAlias = tuple[object, ...]

_TORCH_CODES: dict[torch.dtype, str] = {
    torch.bool: "BOOL",
    torch.uint8: "U8",
    torch.uint16: "U16",
    torch.uint32: "U32",
    torch.uint64: "U64",
    torch.int8: "I8",
    torch.int16: "I16",
    torch.int32: "I32",
    torch.int64: "I64",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.float32: "F32",
    torch.float64: "F64",
}
_NUMPY_CODES: dict[str, str] = {
    "b1": "BOOL",
    **{f"u{n}": f"U{8 * n}" for n in (1, 2, 4, 8)},
    **{f"i{n}": f"I{8 * n}" for n in (1, 2, 4, 8)},
    **{f"f{n}": f"F{8 * n}" for n in (2, 4, 8)},
}


class TensorFileError(ValueError):
    """An array that has no form in the file, or a file that does not hold arrays."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """One array to be written."""

    name: str
    code: str
    shape: tuple[int, ...]
    num_bytes: int
    identity: _Identity | None
    """Equal for two names of one array; ``None`` for an empty array, which shares nothing."""
    packed: Callable[[], memoryview]
    """Makes the bytes, little-endian and C-ordered, when they are about to be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorFile:
    """A file ready to be written: everything that can be wrong with it has been checked."""

    header: bytes
    entries: tuple[_Entry, ...]

    @property
    def size_bytes(self) -> int:
        """Length of the whole file."""
        return len(self.header) + sum(entry.num_bytes for entry in self.entries)

    def write(self, file: BinaryIO) -> str:
        """Write the file and return the SHA-256 of what was written, as hex digits."""
        digest = hashlib.sha256()
        for chunk in self._chunks():
            digest.update(chunk)
            file.write(chunk)
        return digest.hexdigest()

    def _chunks(self) -> Iterator[bytes | memoryview]:
        yield self.header
        for entry in self.entries:
            data = entry.packed()
            for start in range(0, len(data), _CHUNK_BYTES):
                yield data[start : start + _CHUNK_BYTES]


def plan(tensors: Tensors) -> TensorFile:
    """Lay out a file for ``tensors`` without copying any of them.

    Args:
        tensors: Torch tensors on any device, or NumPy arrays; any strides, 0-d and empty ones too.

    Raises:
        TensorFileError: If a name or an array has no form in safetensors; says which and why.
    """
    stored: dict[_Identity, str] = {}
    aliases: dict[str, str] = {}
    entries: list[_Entry] = []
    for name, array in tensors.items():
        entry = _entry(name, array)
        if entry.identity is not None and entry.identity in stored:
            aliases[name] = stored[entry.identity]
            continue
        if entry.identity is not None:
            stored[entry.identity] = name
        entries.append(entry)
    # Widest items first keeps every array aligned to its own size, as other readers expect.
    entries.sort(key=lambda entry: (-_item_bytes(entry.code), entry.name))
    return TensorFile(header=_header(entries, aliases), entries=tuple(entries))


def parse(data: bytes) -> dict[str, torch.Tensor]:
    """Read the arrays of a file.

    Args:
        data: The whole file.

    Returns:
        CPU tensors by name; names that were one array are one tensor object.

    Raises:
        TensorFileError: If the bytes are not such a file.
    """
    try:
        tensors = safetensors_torch.load(data)
        aliases = _read_aliases(data)
    except (SafetensorError, DocumentError, KeyError, RuntimeError) as error:
        raise TensorFileError(f"is not a safetensors file: {error}") from error
    for name, target in aliases.items():
        if name in tensors or target not in tensors:
            raise TensorFileError(f"records {name!r} as another name of {target!r}, which fails")
        tensors[name] = tensors[target]
    return tensors


def copy_contents(contents: CheckpointContents) -> CheckpointContents:
    """Copy every array of ``contents`` to memory of its own on the CPU, shared arrays once.

    This is all that the thread which owns the learner has to do for a checkpoint.
    """
    copies: dict[_Identity, Array] = {}

    def copied(array: Array) -> Array:
        identity = _identity(array)
        if identity is None:
            return _copy(array)
        if identity not in copies:
            copies[identity] = _copy(array)
        return copies[identity]

    tensors = {
        stem: {name: copied(array) for name, array in group.items()}
        for stem, group in contents.tensors.items()
    }
    return replace(contents, tensors=tensors)


def _copy(array: Array) -> Array:
    if isinstance(array, torch.Tensor):
        return array.detach().to("cpu", copy=True)
    return array.copy()


def _entry(name: str, array: Array) -> _Entry:
    if name == _METADATA or not isinstance(name, str):
        raise TensorFileError(f"{name!r} cannot be the name of an array")
    if isinstance(array, torch.Tensor):
        return _torch_entry(name, array.detach())
    if isinstance(array, np.ndarray):
        return _numpy_entry(name, array)
    raise TensorFileError(f"{name!r} is a {type(array).__name__}, expected a tensor or an array")


def _torch_entry(name: str, tensor: torch.Tensor) -> _Entry:
    code = _TORCH_CODES.get(tensor.dtype)
    if code is None or tensor.layout is not torch.strided or tensor.is_meta:
        raise TensorFileError(
            f"{name!r} is a {tensor.layout} tensor of {tensor.dtype} on {tensor.device}; expected "
            f"a dense one with data, of {', '.join(_TORCH_CODES.values())}"
        )
    return _Entry(
        name=name,
        code=code,
        shape=tuple(tensor.shape),
        num_bytes=tensor.numel() * tensor.element_size(),
        identity=_identity(tensor),
        packed=lambda: _torch_bytes(tensor),
    )


def _torch_bytes(tensor: torch.Tensor) -> memoryview:
    flat = tensor.resolve_neg().cpu().contiguous().reshape(-1)
    return flat.view(torch.uint8).numpy().data if flat.numel() else memoryview(b"")


def _numpy_entry(name: str, array: np.ndarray[Any, Any]) -> _Entry:
    code = _NUMPY_CODES.get(array.dtype.str[1:])
    if code is None:
        raise TensorFileError(
            f"{name!r} is an array of {array.dtype}; expected one of {', '.join(_NUMPY_CODES)}"
        )
    return _Entry(
        name=name,
        code=code,
        shape=array.shape,
        num_bytes=array.nbytes,
        identity=_identity(array),
        packed=lambda: _numpy_bytes(array),
    )


def _numpy_bytes(array: np.ndarray[Any, Any]) -> memoryview:
    little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
    return little.reshape(-1).view(np.uint8).data if array.size else memoryview(b"")


def _identity(array: Array) -> _Identity | None:
    """Say where an array lies and how it is read there."""
    if isinstance(array, np.ndarray):
        place = ("cpu", array.__array_interface__["data"][0])
        return (*place, array.dtype.str, array.shape, array.strides) if array.size else None
    if array.is_meta or array.layout is not torch.strided or not array.numel():
        return None
    return (str(array.device), array.data_ptr(), array.dtype, array.shape, array.stride())


def _header(entries: list[_Entry], aliases: Mapping[str, str]) -> bytes:
    """Make the length word and the JSON header; padding aligns the data to 8 bytes."""
    # Header metadata maps text to text, so the aliases travel as a document of their own.
    fields: dict[str, Any] = {
        _METADATA: {"format": "pt", _ALIASES: encode(dict(aliases)).decode("ascii")}
    }
    offset = 0
    for entry in entries:
        end = offset + entry.num_bytes
        fields[entry.name] = {
            "dtype": entry.code,
            "shape": list(entry.shape),
            "data_offsets": [offset, end],
        }
        offset = end
    text = json.dumps(fields, allow_nan=False, separators=(",", ":")).encode("ascii")
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text


def _read_aliases(data: bytes) -> dict[str, str]:
    length = int.from_bytes(data[:8], "little")
    metadata = json.loads(data[8 : 8 + length]).get(_METADATA, {})
    aliases = decode(metadata.get(_ALIASES, "{}").encode("ascii"))
    if not isinstance(aliases, dict):
        raise DocumentError("the record of shared arrays is not a table")
    return aliases


def _item_bytes(code: str) -> int:
    return 1 if code == "BOOL" else int(code.lstrip("UIBF")) // 8
