"""The containers PyTorch weights come in: zip, older pickles, TorchScript, safetensors.

Each is recognised by its content and read from memory; nothing is unpacked to disk. Of a
TorchScript archive only the weights are read: its code could write files when run, and a known
architecture makes running it unnecessary.
"""

from __future__ import annotations

import io
import struct
import zipfile
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

from torch import Tensor

from onnxfr.errors import MissingExtra, OnnxfrError, UnreadableModel, UnsafeFile
from onnxfr.exporters._restricted_pickle import RestrictedUnpickler, load_one
from onnxfr.exporters._torch_specs import Inert, TensorSpec

LEGACY_MAGIC = 0x1950A86A20F9469CFC6C
LEGACY_PROTOCOL = 1001
PREFERRED = (
    "state_dict",
    "model_state_dict",
    "net_state_dict",
    "backbone_state_dict",
    "backbone",
    "model",
    "net",
    "network",
    "module",
)
"""Names under which training scripts keep the network, the likeliest first."""


@dataclass(frozen=True)
class Checkpoint:
    """The weights of a file by name, and what a careful user wants to know about the reading."""

    state_dict: dict[str, Tensor]
    notes: tuple[str, ...] = ()
    container: str = ""
    origins: frozenset[str] = field(default_factory=frozenset)


def read_container(path: Path) -> Checkpoint:
    """Read every tensor of the network stored in ``path``."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise UnreadableModel(f"cannot read {path}: {error.strerror}") from error
    try:
        return _recognised(content, path.name)
    except OnnxfrError:
        raise
    except Exception as error:
        # A forged or damaged file can be wrong in more ways than can be listed.
        raise UnreadableModel(
            f"{path.name} is damaged ({type(error).__name__}: {error}); fetch it again"
        ) from error


def _recognised(content: bytes, name: str) -> Checkpoint:
    if content[:2] == b"PK":
        return _from_zip(content)
    if content[:1] == b"\x80":
        return _from_stream(content)
    if _looks_like_safetensors(content):
        return _from_safetensors(content)
    raise UnreadableModel(
        f"{name} is no PyTorch file: expected a zip archive, a pickle or safetensors; "
        f"it starts with {content[:8]!r}"
    )


def _from_zip(content: bytes) -> Checkpoint:
    try:
        archive = zipfile.ZipFile(io.BytesIO(content))
    except zipfile.BadZipFile as error:
        raise UnreadableModel(f"the zip archive is damaged ({error}); fetch it again") from error
    with archive:
        members = _checked_members(archive, len(content))
        pickles = [name for name in members if PurePosixPath(name).name == "data.pkl"]
        if len(pickles) != 1:
            raise UnreadableModel(
                f"expected one data.pkl in the archive, found {len(pickles)}; "
                "is this a PyTorch checkpoint?"
            )
        root = pickles[0].removesuffix("data.pkl")
        if members.get(f"{root}byteorder") and archive.read(f"{root}byteorder") == b"big":
            raise UnreadableModel("the checkpoint is big-endian; save it again on this machine")
        loaded, reader = load_one(io.BytesIO(archive.read(pickles[0])))
        for key, storage in reader.storages.items():
            member = f"{root}data/{key}"
            if member not in members:
                raise UnreadableModel(f"the archive lacks {member}; fetch it again")
            storage.bind(archive.read(member))
        scripted = any(name.startswith(f"{root}code/") for name in members)
    return _collect(loaded, reader, "torchscript" if scripted else "zip", len(content))


def _checked_members(archive: zipfile.ZipFile, size: int) -> dict[str, zipfile.ZipInfo]:
    members: dict[str, zipfile.ZipInfo] = {}
    for entry in archive.infolist():
        parts = PurePosixPath(entry.filename.replace("\\", "/"))
        if parts.is_absolute() or ".." in parts.parts or ":" in parts.parts[0]:
            raise UnsafeFile(f"the archive holds {entry.filename!r}, a path that leaves it")
        if entry.filename in members:
            raise UnsafeFile(f"the archive holds {entry.filename!r} twice")
        members[entry.filename] = entry
    total = sum(entry.file_size for entry in members.values())
    # PyTorch stores without compression: much more content than file is a zip bomb.
    if total > 4 * size:
        raise UnsafeFile(f"the archive of {size} bytes claims to unpack to {total} bytes")
    return members


def _from_stream(content: bytes) -> Checkpoint:
    stream = io.BytesIO(content)
    magic, reader = load_one(stream)
    if magic != LEGACY_MAGIC:
        return _collect(magic, reader, "pickle", len(content))
    protocol, _ = load_one(stream)
    if protocol != LEGACY_PROTOCOL:
        raise UnreadableModel(f"unknown version {protocol!r} of the older PyTorch format")
    system, _ = load_one(stream)
    if isinstance(system, dict) and system.get("little_endian") is False:
        raise UnreadableModel("the checkpoint is big-endian; save it again on this machine")
    loaded, reader = load_one(stream)
    keys, _ = load_one(stream)
    _bind_stream(stream, keys, reader)
    return _collect(loaded, reader, "legacy", len(content))


def _bind_stream(stream: io.BytesIO, keys: object, reader: RestrictedUnpickler) -> None:
    if not isinstance(keys, list) or set(map(str, keys)) != set(reader.storages):
        raise UnreadableModel("the list of storages disagrees with the tensors; fetch it again")
    view = stream.getbuffer()
    place = stream.tell()
    for storage in (reader.storages[str(key)] for key in keys):
        if place + 8 > len(view):
            raise UnreadableModel(f"storage {storage.key!r} is missing; fetch the file again")
        (count,) = struct.unpack_from("<q", view, place)
        place += 8
        size = count * storage.dtype.itemsize
        if count < 0 or place + size > len(view):
            raise UnsafeFile(
                f"storage {storage.key!r} claims {size} bytes beyond the end of the file"
            )
        storage.bind(view[place : place + size])
        place += size


def _looks_like_safetensors(content: bytes) -> bool:
    if len(content) < 10:
        return False
    (length,) = struct.unpack_from("<Q", content)
    return bool(length <= len(content) - 8 and content[8:9] == b"{")


def _from_safetensors(content: bytes) -> Checkpoint:
    try:
        from safetensors import SafetensorError
        from safetensors.torch import load
    except ImportError as error:
        raise MissingExtra("safetensors", "torch") from error
    try:
        return Checkpoint(dict(load(content)), container="safetensors")
    except SafetensorError as error:
        raise UnreadableModel(f"the safetensors file is damaged ({error})") from error


def _collect(loaded: object, reader: RestrictedUnpickler, container: str, size: int) -> Checkpoint:
    notes: list[str] = []
    if container == "torchscript":
        notes.append("weights were read; the TorchScript code inside was not run")
    specs = _tensors_of(loaded, notes)
    unpacked = _unpack_quantised(specs, notes)
    if not unpacked:
        raise UnreadableModel(
            "the file holds no named tensors; expected a state dict or a pickled module"
        )
    # Tied weights repeat once or twice, int8 grows four times; beyond that it is an attack.
    total = sum(spec.nbytes for spec in unpacked.values())
    if total > 16 * max(size, 1 << 20):
        raise UnsafeFile(f"{size} bytes of file claim to hold {total} bytes of weights")
    state = {key: spec.materialise() for key, spec in unpacked.items()}
    return Checkpoint(state, tuple(notes), container, frozenset(reader.origins))


def _tensors_of(loaded: object, notes: list[str]) -> dict[str, object]:
    if isinstance(loaded, Inert):
        if loaded.items and not loaded.attributes:
            return _tensors_of(loaded.items, notes)
        notes.append(f"pickled object {loaded.origin}: state read, class not imported")
        return dict(_walk_module(loaded, ""))
    if not isinstance(loaded, dict):
        return {}
    direct = {
        str(key): value
        for key, value in loaded.items()
        if isinstance(value, TensorSpec) or _is_packed(value)
    }
    if direct:
        return {str(key): value for key, value in loaded.items()}
    inner = [(str(key), value) for key, value in loaded.items() if isinstance(value, dict | Inert)]
    ranked = sorted(
        inner, key=lambda pair: PREFERRED.index(pair[0]) if pair[0] in PREFERRED else len(PREFERRED)
    )
    for key, value in ranked:
        found = _tensors_of(value, notes)
        if any(isinstance(item, TensorSpec) for item in found.values()):
            others = sorted(str(name) for name in loaded if str(name) != key)
            notes.append(
                f"network taken from {key!r}; left aside: {', '.join(others) or 'nothing'}"
            )
            return found
    return {}


def _walk_module(module: Inert, prefix: str) -> list[tuple[str, object]]:
    """List the named tensors of a pickled ``nn.Module`` or of a TorchScript object."""
    found: list[tuple[str, object]] = []
    own = module.attributes
    children: dict[object, object] = {}
    for group in ("_parameters", "_buffers"):
        entries = own.get(group)
        if isinstance(entries, dict):
            found += [(f"{prefix}{key}", value) for key, value in entries.items()]
    named = own.get("_modules")
    if isinstance(named, dict):
        children = named
    else:
        found += [(f"{prefix}{key}", v) for key, v in own.items() if isinstance(v, TensorSpec)]
        children = {key: value for key, value in own.items() if isinstance(value, Inert)}
    for key, child in children.items():
        if isinstance(child, Inert):
            found += _walk_module(child, f"{prefix}{key}.")
    return found


def _is_packed(value: object) -> bool:
    return isinstance(value, tuple) and bool(value) and isinstance(value[0], TensorSpec)


def _unpack_quantised(entries: dict[str, object], notes: list[str]) -> dict[str, TensorSpec]:
    """Turn packed int8 layers into plain weight and bias; drop what only the int8 kernels need."""
    suffix = "._packed_params._packed_params"
    packed = {key.removesuffix(suffix) for key in entries if key.endswith(suffix)}
    unpacked: dict[str, TensorSpec] = {}
    for key, value in entries.items():
        layer, _, leaf = key.rpartition(".")
        if key.endswith(suffix) and isinstance(value, tuple):
            layer = key.removesuffix(suffix)
            for name, part in zip(("weight", "bias"), value, strict=False):
                if isinstance(part, TensorSpec):
                    unpacked[f"{layer}.{name}"] = part
        elif leaf in {"scale", "zero_point"} and _is_quantised(layer, entries, packed):
            continue
        elif isinstance(value, TensorSpec):
            unpacked[key] = value
    if packed or any(spec.quantiser for spec in unpacked.values()):
        notes.append("int8 weights were dequantised to float32")
    return unpacked


def _is_quantised(layer: str, entries: dict[str, object], packed: set[str]) -> bool:
    weight = entries.get(f"{layer}.weight")
    return layer in packed or (isinstance(weight, TensorSpec) and weight.quantiser is not None)
