#!/usr/bin/env python3
"""Reads a decompressed snapshot with nothing but Python's own library, as the format's description says, and
compares its weights with those of a Hugging Face export of the same run.

    read_snapshot.py SNAPSHOT.safetensors FOLDER      exit 0 if everything holds, else 1 and what does not
"""
import array
import json
import math
import sys

HEADS = ("param", "moment1", "moment2")


def read_safetensors(path):
    """Metadata and {name: (dtype, shape, bytes)}; every rule of the format is asserted."""
    data = open(path, "rb").read()
    length = int.from_bytes(data[:8], "little")
    assert (8 + length) % 8 == 0, f"{path}: data begins at byte {8 + length}, not a multiple of 8"
    header = json.loads(data[8:8 + length], object_pairs_hook=reject_duplicates)
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values()), metadata
    tensors = {}
    end = 0
    for name, entry in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        begin, new_end = entry["data_offsets"]
        size = math.prod(entry["shape"]) * {"U8": 1, "F32": 4}[entry["dtype"]]
        assert (begin, new_end) == (end, end + size), f"{path}: {name}: {entry}, expected to begin at {end}"
        tensors[name] = (entry["dtype"], entry["shape"], data[8 + length + begin:8 + length + new_end])
        end = new_end
    assert 8 + length + end == len(data), f"{path}: {len(data) - 8 - length - end} bytes follow"
    return metadata, tensors


def reject_duplicates(pairs):
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), "a name is given twice"
    return dict(pairs)


def join_planes(tensors, name):
    """The fp32 bytes of a tensor that lies as four byte planes."""
    planes = [tensors.pop(f"{name}/b{plane}") for plane in range(4)]
    assert all(dtype == "U8" and shape == planes[0][1] for dtype, shape, _ in planes), name
    joined = bytearray(4 * len(planes[0][2]))
    for plane in range(4):
        joined[plane::4] = planes[plane][2]
    return planes[0][1], bytes(joined)


def transpose(shape, data):
    rows, columns = shape
    values = array.array("I", data)
    return [columns, rows], b"".join(values[column::columns].tobytes() for column in range(columns))


def main():
    metadata, tensors = read_safetensors(sys.argv[1])
    for key in ("step", "sample", "best_loss", "data_fingerprint", "version", "options"):
        assert key in metadata, f"metadata lacks {key}: {metadata}"
    assert int(metadata["step"]) > 0 and int(metadata["sample"]) > 0, metadata
    assert isinstance(json.loads(metadata["options"]), dict), metadata
    _, exported = read_safetensors(sys.argv[2] + "/model.safetensors")
    for name, (_, shape, data) in exported.items():
        name = name.removeprefix("transformer.")
        states = [join_planes(tensors, f"{head}.{name}") for head in HEADS]
        ours = states[0]
        if ".c_" in name and name.endswith(".weight"):
            ours = transpose(*ours)
        assert ours == (shape, data), f"{name}: {ours[0]} of the snapshot and {shape} of the export differ"
        assert all(value >= 0 and math.isfinite(value) for value in array.array("f", states[2][1])), name
    assert not tensors, f"tensors that are nobody's: {sorted(tensors)}"


try:
    main()
except AssertionError as error:
    sys.exit(f"read_snapshot.py: {error}")
