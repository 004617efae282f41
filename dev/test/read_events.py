#!/usr/bin/env python3
"""The curves in a folder's events.out.tfevents.* files as TensorBoard shows them: `tag step value` lines, by
tag and step. A start of a session forgets that step and later ones. Every checksum is verified.
    dev/test/read_events.py FOLDER
"""
import glob
import struct
import sys


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    crc ^= 0xffffffff
    return ((crc >> 15 | crc << 17) + 0xa282ead8) & 0xffffffff


def records(data):
    at = 0
    while at < len(data):
        length, length_crc = struct.unpack_from("<QI", data, at)
        record, = struct.unpack_from("<%ds" % length, data, at + 12)
        crc, = struct.unpack_from("<I", data, at + 12 + length)
        if crc32c(data[at:at + 8]) != length_crc or crc32c(record) != crc:
            sys.exit("wrong checksum at byte %d" % at)
        yield record
        at += 16 + length


def fields(message):
    """Number and value of each field: integers, and bytes for all other kinds."""
    at = 0

    def varint():
        nonlocal at
        value = shift = 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 0x7f) << shift
            shift += 7
            if byte < 0x80:
                return value

    while at < len(message):
        key = varint()
        if key & 7 == 0:
            yield key >> 3, varint()
            continue
        length = {1: 8, 5: 4}.get(key & 7) or varint()
        yield key >> 3, message[at:at + length]
        at += length


points = []
for path in sorted(glob.glob(sys.argv[1] + "/events.out.tfevents.*")):
    with open(path, "rb") as file:
        content = file.read()
    for number, record in enumerate(records(content)):
        event = dict(fields(record))
        step = event.get(2, 0)
        if (number == 0) != (event.get(3) == b"brain.Event:2"):
            sys.exit("%s: the version is not its first event" % path)
        if 7 in event and dict(fields(event[7])).get(1) == 1:
            points = [point for point in points if point[1] < step]
        for _, value in fields(event.get(5, b"")):
            value = dict(fields(value))
            points.append((value[1].decode(), step, struct.unpack("<f", value[2])[0]))
for tag, step, value in sorted(points):
    print("%s %d %.9g" % (tag, step, value))
