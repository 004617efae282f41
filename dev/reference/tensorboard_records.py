#!/usr/bin/env python3
"""Prints the records of dev/test/test_tensorboard.c as TensorBoard's own code writes them (pip install
tensorboard). wall_time is 1.0 in all of them: the test does not compare it."""
import io

from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter


class Kept(io.BytesIO):
    def close(self):
        pass


def show(name, event):
    event.wall_time = 1.0
    kept = Kept()
    RecordWriter(kept).write(event.SerializeToString())
    print("/* %s */" % name)
    data = kept.getvalue()
    for i in range(0, len(data), 16):
        print("    " + " ".join("0x%02x," % byte for byte in data[i:i + 16]))


value = Summary.Value
show("peer_version", Event(file_version="brain.Event:2"))
show("peer_start", Event(step=300, session_log=SessionLog(status=SessionLog.START)))
show("peer_summary", Event(step=300, summary=Summary(value=[
    value(tag="train/loss", simple_value=3.25), value(tag="train/lr", simple_value=6e-4),
    value(tag="eval/val_loss", simple_value=float("nan"))])))
