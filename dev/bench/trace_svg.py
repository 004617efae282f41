#!/usr/bin/env python3
"""One step of a trace (--trace=K, out_dir/trace.json) as a picture: a row for each thread of each rank.

    dev/bench/trace_svg.py out/trace.json [STEP [TITLE]] >picture.svg        STEP: the last, unless told
"""
import html
import json
import sys

WIDTH, LEFT, RIGHT, TOP, ROW, GAP = 1200, 150, 12, 54, 34, 8
COLOURS = [("forward", "#9ecae1"), ("backward", "#3182bd"), ("slot", "#deebf7"), ("bucket", "#fd8d3c"),
           ("late", "#a63603"), ("tail", "#a63603"), ("wait", "#d9d9d9"), ("update", "#74c476"),
           ("load", "#bdbdbd"),
           ("evaluate", "#bcbddc"), ("snapshot", "#bcbddc")]
LEGEND = [("forward", "forward, lm_head"), ("backward", "backward, block by block"),
          ("slot", "earlier slots"),
          ("bucket", "all-reduce, bucket by bucket"), ("late", "late rows of wte"), ("wait", "wait"),
          ("update", "update")]


def colour(name):
    return next((value for prefix, value in COLOURS if name.startswith(prefix)), "#ffffff")


def read(path, step):
    with open(path) as file:
        events = json.load(file)["traceEvents"]
    spans = [event for event in events if event["ph"] == "X"]
    steps = {event["args"]["iter"] for event in spans}
    step = max(steps) if step is None else step
    if step not in steps:
        sys.exit("%s: expected one of the steps %s, found %s" % (path, sorted(steps), step))
    rows = {(event["pid"], event["tid"]): event["args"]["name"] for event in events
            if event["name"] == "thread_name"}
    ranks = {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}
    labels = {key: "%s %s" % (ranks[key[0]], name) for key, name in sorted(rows.items())}
    return labels, [event for event in spans if event["args"]["iter"] == step], step


def shown(spans):
    """A slot that backward's spans cover in detail is not drawn over them."""
    detailed = {(one["pid"], one["tid"]): one["ts"] for one in spans if one["name"].startswith("forward")}
    return [one for one in spans if one["dur"] > 0 and not (
        one["name"] == "slot" and
        one["ts"] + one["dur"] > detailed.get((one["pid"], one["tid"]), float("inf")) + 1)]


def label(name):
    if name.startswith("backward block "):
        return name[len("backward block "):]
    return "" if name.startswith("bucket ") else name


def draw(labels, spans, title):
    begin = min(one["ts"] for one in spans)
    end = max(one["ts"] + one["dur"] for one in spans)
    scale = (WIDTH - LEFT - RIGHT) / (end - begin)
    height = TOP + len(labels) * (ROW + GAP) + 34
    out = ['<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" '
           'font-size="11">' %
           (WIDTH, height), '<rect width="%d" height="%d" fill="#ffffff"/>' % (WIDTH, height),
           '<text x="8" y="18" font-size="14">%s</text>' % html.escape(title)]
    x = LEFT
    for name, text in LEGEND:
        out.append('<rect x="%d" y="28" width="12" height="12" fill="%s" stroke="#888"/>' % (x, colour(name)))
        out.append('<text x="%d" y="38">%s</text>' % (x + 16, text))
        x += 34 + 6 * len(text)
    bottom = TOP + len(labels) * (ROW + GAP)
    total_ms = (end - begin) / 1e3
    tick_ms = next(ms for power in range(12) for ms in (10**power, 2 * 10**power, 5 * 10**power)
                   if total_ms / ms <= 14)
    for i in range(int(total_ms / tick_ms) + 1):
        x = LEFT + i * tick_ms * 1e3 * scale
        out.append('<line x1="%.1f" y1="%d" x2="%.1f" y2="%d" stroke="#aaa"/>' % (x, TOP - 4, x, bottom))
        out.append('<text x="%.1f" y="%d" text-anchor="middle">%g ms</text>' % (x, bottom + 14, i * tick_ms))
    places = {key: TOP + i * (ROW + GAP) for i, key in enumerate(labels)}
    for key, y in places.items():
        out.append('<text x="8" y="%d">%s</text>' % (y + ROW / 2 + 4, html.escape(labels[key])))
    for one in shown(spans):
        x, width = LEFT + (one["ts"] - begin) * scale, one["dur"] * scale
        if width < 0.15:
            continue
        y = places[one["pid"], one["tid"]]
        sent = ", %.1f MB" % (one["args"]["bytes"] / 1e6) if one["args"].get("bytes") else ""
        out.append('<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s" stroke="#fff" '
                   'stroke-width="0.4">'
                   '<title>%s: %.1f ms%s</title></rect>' %
                   (x, y, width, ROW, colour(one["name"]), html.escape(one["name"]), one["dur"] / 1e3, sent))
        text = label(one["name"])
        if text and width > 6.5 * len(text) + 2:
            out.append('<text x="%.1f" y="%d" text-anchor="middle">%s</text>' %
                       (x + width / 2, y + ROW / 2 + 4, html.escape(text)))
    return "\n".join(out + ["</svg>", ""])


def main():
    if not 2 <= len(sys.argv) <= 4:
        sys.exit(__doc__.strip())
    labels, spans, step = read(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else None)
    title = sys.argv[3] if len(sys.argv) > 3 else "step %d" % step
    sys.stdout.write(draw(labels, spans, title))


if __name__ == "__main__":
    main()
