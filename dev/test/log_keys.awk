# The events and keys that llmc/run/*.c writes to log.jsonl, as `event key` lines: of each function that prints
# `{"event":"name"`, the keys that it prints as text or adds by add_number.
function take(pattern, skip, found) {
    rest = $0
    while (match(rest, pattern)) {
        found = substr(rest, RSTART + skip, RLENGTH - skip)
        rest = substr(rest, RSTART + RLENGTH)
        sub(/\\?".*/, "", found)
        if (found != "event") print event, found
    }
}
match($0, /\{\\"event\\":\\"[a-z_]+/) { event = substr($0, RSTART + 13, RLENGTH - 13) }
event != "" {
    take("\\\\\"[a-z_]+\\\\\":", 2)
    take("add_number\\(log, \"[a-z_]+", 17)
}
/^\}/ { event = "" }
