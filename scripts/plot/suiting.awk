# Published losses that suit the runs, for scripts/plot.sh: `loss label` lines, from published.txt and what
# read.awk prints (one file a run).
#   -v which=auto|none|DATA     auto: those of a run's data, and of its size within a tenth
FILENAME ~ /published.txt$/ {
    if ($0 !~ /^#/ && NF > 3) {
        rows++
        data[rows] = $1
        size[rows] = $2
        loss[rows] = $3
        sub(/^[^ ]+ +[^ ]+ +[^ ]+ +/, "")
        label[rows] = $0
    }
    next
}
FNR == 1 { runs++ }
$1 == "facts" { facts[runs, $2] = $3 }

END {
    for (i = 1; i <= rows; i++) {
        suits = which == data[i]
        for (r = 1; r <= runs && which == "auto"; r++) {
            ratio = facts[r, "parameters"] / size[i]
            if (facts[r, "dataset"] == data[i] && ratio > 1 / 1.1 && ratio < 1.1) suits = 1
        }
        if (suits) print loss[i], label[i] " (" loss[i] ")"
    }
}
