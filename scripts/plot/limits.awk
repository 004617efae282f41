# Edges and units for scripts/plot.sh, as assignments of the shell, from what read.awk prints: one file a run.
# The first 2 % of a run, where the loss falls from that of chance, may leave the picture; a published loss
# (`3.12 label` lines in the environment's suiting) that is not far below the curves may widen it.
#   -v low=L -v high=H      losses at the edges that the user gave, or nothing

function seen(loss) {
    if (least == "" || loss < least) least = loss
    if (loss > most) most = loss
}
function name_unit(what, value, units, unit, i) { # of "factor name from .."
    for (i = split(units, unit, ";"); i > 1 && value < unit[i] * 2; i--);
    sub(/^ +/, "", unit[i])
    print what "_unit=" (unit[i] + 0) " " what "_name=\"" substr(unit[i], index(unit[i], " ") + 1) "\""
}
$1 == "step" {
    tokens[FILENAME, ++n[FILENAME]] = $2
    smooth[FILENAME, n[FILENAME]] = $5
    seen($5)
    if (n[FILENAME] > 1 && $7 > rate_most) rate_most = $7
    if ($8 > 0) is_shared = 1
}
$1 == "eval" { seen($4) }
$1 != "facts" {
    if ($2 > tokens_most) tokens_most = $2
    if ($3 > seconds_most) seconds_most = $3
}
END {
    for (file in n) {
        if (smooth[file, n[file]] > last) last = smooth[file, n[file]]
        for (i = 1; i <= n[file]; i++)
            if (tokens[file, i] >= tokens[file, n[file]] * 0.02 && smooth[file, i] > settled)
                settled = smooth[file, i]
    }
    top = settled > 0 && settled < most ? settled : most
    bottom = least
    rows = split(ENVIRON["suiting"], row, "\n")
    for (i = 1; i <= rows; i++) {
        loss = row[i] + 0
        if (loss > 0 && loss < bottom && loss > least - (top - least) / 2) bottom = loss
        if (loss > top && loss < most) top = loss
    }
    pad = top > bottom ? (top - bottom) * 0.08 : 0.5
    if (low == "") low = bottom - pad > 0 ? bottom - pad : 0
    if (high == "") high = top + pad
    if (!(high > low)) high = low + 1
    printf "low=%.6g high=%.6g free=%.6g loss_format=%%.%df\n", low, high,
        last + (high - low) * 0.06, (high - low < 0.5 ? 2 : 1)
    printf "tokens_most=%.6g seconds_most=%.6g is_shared=%d rate_most=%.6g\n",
        (tokens_most ? tokens_most : 1), (seconds_most ? seconds_most : 1), is_shared, (rate_most ? rate_most : 1)
    name_unit("tokens", tokens_most, "1 tokens; 1e3 thousand tokens; 1e6 million tokens; 1e9 billion tokens")
    name_unit("rate", rate_most,
        "1 tokens a second; 1e3 thousand tokens a second; 1e6 million tokens a second")
    name_unit("time", seconds_most, "1 seconds of training; 60 minutes of training; " \
        "3600 hours of training; 86400 days of training")
}
