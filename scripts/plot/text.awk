# Draws the losses of runs as text for scripts/plot.sh, from what read.awk prints (one file a run): curves of
# 2 x 4 dots a character in braille, or of one mark a character. The environment holds names (of the runs) and
# suiting (published losses, `3.12 label`), a line each.
#   -v columns=80 -v lines=24   room
#   -v utf8=1                   braille and line drawing; else ASCII
#   -v colour=1                 a colour for each run
#   -v over=tokens|time|updates -v unit=1e6 -v unit_name="million tokens"
#   -v low=2 -v high=11         losses at the edges


function cell(x, y) { return y * wide + x }

# One dot; x and y in dots from the top left.
function dot(x, y, run, at) {
    if (x < 0 || y < 0 || x >= wide * dots_x || y >= high_cells * dots_y) return
    at = cell(int(x / dots_x), int(y / dots_y))
    if (owner[at] == "val") return
    if (dots_y == 4 && !((at, x % 2, y % 4) in dots)) {
        dots[at, x % 2, y % 4] = 1
        bits[at] += weight[x % 2, y % 4]
    }
    owner[at] = run
}
function floor(value) { return value < 0 && value != int(value) ? int(value) - 1 : int(value) }
function column(value) { return floor(value / x_high * (wide * dots_x - 1) + 0.5) }
function row(value) { return floor((high - value) / (high - low) * (high_cells * dots_y - 1) + 0.5) }

# From the last point of the run to this one.
function draw_to(run, x, y, steps, i) {
    steps = run in last_x ? (x > last_x[run] ? x - last_x[run] : 0) : 0
    i = run in last_x ? (y > last_y[run] ? y - last_y[run] : last_y[run] - y) : 0
    steps = i > steps ? i : steps
    for (i = 1; i < steps; i++)
        dot(int(last_x[run] + (x - last_x[run]) * i / steps + 0.5),
            int(last_y[run] + (y - last_y[run]) * i / steps + 0.5), run)
    dot(x, y, run)
    last_x[run] = x
    last_y[run] = y
}

# 1, 2 or 5 times a power of ten: about `count` of them in `span`.
function nice_step(span, count, power, part) {
    for (power = 1; power * 10 <= span / count; power *= 10);
    for (; power > span / count; power /= 10);
    part = span / count / power
    return power * (part <= 1 ? 1 : part <= 2 ? 2 : part <= 5 ? 5 : 10)
}
function decimals(step) { return step >= 1 ? 0 : step >= 0.1 ? 1 : step >= 0.01 ? 2 : 3 }
function put(x, y, text, i) {
    for (i = 1; i <= length(text); i++)
        if (x + i - 1 >= 0 && x + i - 1 < wide) over_text[cell(x + i - 1, y)] = substr(text, i, 1)
}
function paint(run, text) {
    return colour && run ~ /^[0-9]+$/ ? sprintf("\033[%dm%s\033[0m", shades[(run - 1) % 6 + 1], text) : text
}

BEGIN {
    split("34 33 32 35 36 31", shades, " ")
    split("1 8 2 16 4 32 64 128", order, " ")
    for (i = 0; i < 8; i++) weight[i % 2, int(i / 2)] = order[i + 1]
    runs = split(ENVIRON["names"], name, "\n")
    braille = utf8 && (runs == 1 || colour)
    dots_x = braille ? 2 : 1
    dots_y = braille ? 4 : 1
    margin = 8
    wide = columns - margin - 2
    high_cells = lines - 5
    vertical = utf8 ? "│" : "|"
    horizontal = utf8 ? "─" : "-"
    corner = utf8 ? "└" : "+"
    point = utf8 ? "●" : "o"
    dash = utf8 ? "╌" : "-"
}

FNR == 1 { file++ }
$1 == "step" || $1 == "eval" {
    n = ++count[file, $1]
    x = (over == "time" ? $3 : $2) / unit
    xs[file, $1, n] = x
    ys[file, $1, n] = $1 == "step" ? $5 : $4
    if (x > x_high) x_high = x
}

END {
    if (!(x_high > 0)) x_high = 1
    lines_count = split(ENVIRON["suiting"], line, "\n")
    for (i = 1; i <= lines_count; i++) {
        y = row(line[i] + 0)
        if (line[i] == "" || y < 0 || y >= high_cells * dots_y) continue
        for (x = 0; x < wide; x++) owner[cell(x, int(y / dots_y))] = "published"
        sub(/^[^ ]* /, "", line[i])
        if (length(line[i]) < wide - 2) put(wide - length(line[i]) - 1, int(y / dots_y), line[i])
    }
    for (f = 1; f <= file; f++) {
        for (i = 1; i <= count[f, "step"]; i++) draw_to(f, column(xs[f, "step", i]), row(ys[f, "step", i]))
        for (i = 1; i <= count[f, "eval"]; i++) {
            x = int(column(xs[f, "eval", i]) / dots_x)
            y = floor(row(ys[f, "eval", i]) / dots_y)
            if (y < 0 || y >= high_cells || (i < count[f, "eval"] && i > 1 && x < marked[f] + 4)) continue
            marked[f] = x
            owner[cell(x, y)] = "val"
            val_of[cell(x, y)] = f
        }
    }

    step = nice_step(high - low, high_cells / 3)
    for (value = int(low / step + 1) * step; value < high; value += step)
        label[int(row(value) / dots_y)] = sprintf("%." decimals(step) "f", value)
    print "  loss"
    for (y = 0; y < high_cells; y++) {
        text = sprintf("%" margin - 1 "s ", label[y]) vertical
        for (x = 0; x < wide; x++) {
            at = cell(x, y)
            who = owner[at]
            if (who == "val") text = text paint(val_of[at], runs == 1 || colour ? point : "o")
            else if (who != "" && who != "published")
                text = text paint(who, braille ? sprintf("%c%c%c", 226, 160 + int(bits[at] / 64),
                    128 + bits[at] % 64) : runs == 1 ? "*" : substr("123456789", who, 1))
            else if (at in over_text) text = text over_text[at]
            else text = text (who == "published" ? dash : " ")
        }
        sub(/ +$/, "", text)
        print text
    }
    text = sprintf("%" margin "s", "") corner
    for (x = 0; x < wide; x++) text = text horizontal
    print text
    step = nice_step(x_high, wide / 10)
    text = sprintf("%" margin "s", "")
    for (value = 0; value <= x_high; value += step) {
        tick = sprintf("%." decimals(step) "f", value)
        x = margin + 1 + int(column(value) / dots_x) - int(length(tick) / 2)
        if (x >= length(text) && x + length(tick) <= columns)
            text = text sprintf("%" x - length(text) "s", "") tick
    }
    print text
    print sprintf("%" int(margin + wide - length(unit_name)) "s", "") unit_name
    for (f = 1; f <= runs; f++) {
        mark = braille ? "━━" : runs == 1 ? "*" : substr("123456789", f, 1)
        m = count[f, "eval"]
        n = count[f, "step"]
        if (runs == 1) print "  " mark " training loss (running mean)   " point " validation loss"
        if (runs == 1) text = "  last: "
        else text = "  " paint(f, mark) "  " name[f] ": "
        text = text (n ? sprintf("loss %.4f", ys[f, "step", n]) : "no updates")
        print text (m ? sprintf(", validation %.4f", ys[f, "eval", m]) : "")
    }
}
