#!/usr/bin/env bash
# Draw runs from their log.jsonl (docs/log.md): in the terminal, or with gnuplot as a picture.
#   scripts/plot.sh [options] RUN...
#       RUN                  a run's out_dir, or its log.jsonl; NAME=RUN gives it a name in the picture
#       -o, --output=FILE    FILE.png or FILE.svg: loss over tokens and over time, throughput, and exposed
#                            communication (of one rank: the norm of the gradient). Takes gnuplot:
#                            scripts/install_deps.sh --plot
#       --over=WHAT          tokens (default) or time: what the terminal's curve goes over
#       --published=WHICH    lines of published losses (scripts/plot/published.txt): auto (those of the runs'
#                            data and sizes; the default), none, or those of a data set, like openwebtext
#       --low=L --high=H     losses at the lower and upper edge, where those chosen do not suit
#       --title=TEXT         of the picture
# Without -o it takes awk alone. COLUMNS and LINES say how large the terminal is, where it does not.
set -euo pipefail
export LC_NUMERIC=C
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)

fail() {
    echo "plot.sh: $*" >&2
    exit 1
}

output= over=tokens published=auto low= high= title=
runs=()
while [ $# -gt 0 ]; do
    case $1 in
    -h | --help)
        sed -n '2,/^set /s/^# \{0,1\}//p' "$0" | sed '$d'
        exit 0
        ;;
    -o | --output)
        [ $# -ge 2 ] || fail "$1: expected a file after it"
        output=$2
        shift
        ;;
    --output=*) output=${1#*=} ;;
    --over=tokens | --over=time) over=${1#*=} ;;
    --published=*) published=${1#*=} ;;
    --low=* | --high=*)
        [[ ${1#*=} =~ ^[0-9]+(\.[0-9]*)?$ ]] || fail "$1: expected a loss, a number from 0 on"
        printf -v "$(expr "$1" : '--\([a-z]*\)')" %s "${1#*=}"
        ;;
    --title=*) title=${1#*=} ;;
    -*) fail "$1: expected -o FILE, --over=tokens or time, --published=WHICH, --low=L, --high=H," \
        "--title=TEXT or --help" ;;
    *) runs+=("$1") ;;
    esac
    shift
done
[ ${#runs[@]} -gt 0 ] || fail "expected the out_dir of a run, or its log.jsonl; see --help"
[ ${#runs[@]} -le 9 ] || fail "${#runs[@]} runs: expected at most 9"
case $output in
'' | *.png | *.svg) ;;
*) fail "$output: expected a name that ends in .png or .svg" ;;
esac
[ -z "$output" ] || command -v gnuplot >/dev/null ||
    fail "$output: a picture takes gnuplot, found none; scripts/install_deps.sh --plot (or apt-get install" \
        "gnuplot-nox) installs it. Without -o the curve is drawn here, by awk"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# ---- what the logs hold ------------------------------------------------------------------------------------
names=()
for run in "${runs[@]}"; do
    name=
    if [[ $run == *=* && ! -e $run ]]; then
        name=${run%%=*}
        run=${run#*=}
    fi
    log=$run
    [ ! -d "$log" ] || log=${run%/}/log.jsonl
    if [ ! -r "$log" ] || [ -d "$log" ]; then
        fail "$log: expected a run's log.jsonl, found nothing that can be read"
    fi
    if [ -z "$name" ]; then
        name=$(basename "$(cd "$(dirname "$log")" && pwd)")
        [ "${log##*/}" = log.jsonl ] || name=$(basename "$log" .jsonl)
    fi
    names+=("$name")
    LC_ALL=C awk -v points=1200 -f "$here/plot/read.awk" <"$log" >"$work/${#names[@]}"
    grep -qE '^(step|eval) ' "$work/${#names[@]}" ||
        fail "$log: expected steps or evaluations of a run that trains, found none"
done
files=()
for ((i = 1; i <= ${#names[@]}; i++)); do files+=("$work/$i"); done

# fact KEY: of the first run.
fact() {
    sed -n "s/^facts $1 //p" "$work/1"
}

# Published losses that suit: `loss label` lines.
suiting=$(LC_ALL=C awk -v which="$published" -f "$here/plot/suiting.awk" "$here/plot/published.txt" \
    "${files[@]}")
export suiting
if [ "$published" != auto ] && [ "$published" != none ] && [ -z "$suiting" ]; then
    known=$(sed '/^#/d; s/ .*//' "$here/plot/published.txt" | sort -u | paste -sd' ')
    fail "--published=$published: expected auto, none, or one of $known"
fi

eval "$(LC_ALL=C awk -v low="$low" -v high="$high" -f "$here/plot/limits.awk" "${files[@]}")"

# ---- in the terminal ---------------------------------------------------------------------------------------
if [ -z "$output" ]; then
    utf8=0 colour=0 size=
    case ${LC_ALL:-${LC_CTYPE:-${LANG:-}}} in *[Uu][Tt][Ff]*) utf8=1 ;; esac
    if [ -t 1 ]; then
        size=$(stty size </dev/tty 2>/dev/null || true) # lines and columns
        [ "${TERM:-dumb}" = dumb ] || [ -n "${NO_COLOR:-}" ] || colour=1
    fi
    columns=${COLUMNS:-${size#* }} lines=${LINES:-${size% *}}
    [ "${columns:-0}" -ge 40 ] 2>/dev/null || columns=80
    [ "${lines:-0}" -ge 12 ] 2>/dev/null || lines=24
    unit=$tokens_unit unit_name=$tokens_name
    [ $over = tokens ] || unit=$time_unit unit_name=$time_name
    columns=$((columns > 120 ? 120 : columns)) lines=$((lines > 32 ? 32 : lines))
    names=$(printf '%s\n' "${names[@]}") LC_ALL=C awk -v columns=$columns -v lines=$lines -v utf8=$utf8 \
        -v colour=$colour -v over=$over -v unit="$unit" -v unit_name="$unit_name" -v low="$low" \
        -v high="$high" -f "$here/plot/text.awk" "${files[@]}"
    exit
fi

# ---- as a picture ------------------------------------------------------------------------------------------
# Okabe and Ito's colours, which colour-blind people tell apart.
colours=("#0072B2" "#D55E00" "#009E73" "#CC79A7" "#E69F00" "#56B4E9" "#000000" "#7F7F7F" "#8C510A")
count=${#names[@]}

quoted() { # as a string of gnuplot
    printf "'%s'" "${1//\'/\'\'}"
}
# curve RUN KIND X Y STYLE [TITLE]: of a run's steps or evaluations; X and Y as gnuplot writes them.
curve() {
    local title=notitle every=
    [ -z "${6:-}" ] || title="title $(quoted "$6")"
    case $4 in *"/$rate_unit") every='every ::1' ;; esac # the first update warms up
    echo "'< sed -n \"s/^$2 //p\" ${files[$1]}' $every using ($3):($4) with $5 $title"
}
# panel TITLE X_LABEL Y_LABEL CURVE...
panel() {
    local IFS=,
    printf 'set title %s\nset xlabel %s\nset ylabel %s\nplot %s\n' "$(quoted "$1")" "$(quoted "$2")" \
        "$(quoted "$3")" "${*:4}"
}
# losses X: the curves of the two upper panels, in parts. Single updates are drawn where they hide no others.
losses() {
    local i marks
    parts=()
    for ((i = 0; i < count && count <= 3; i++)); do
        parts+=("$(curve $i step "$1" '$3' "lines lw 0.8 lc rgb '#B0${colours[i]#?}'")")
    done
    for ((i = 0; i < count; i++)); do
        name=${names[i]}
        [ $count -gt 1 ] || name='training loss (running mean)'
        parts+=("$(curve $i step "$1" '$4' "lines lw 2.4 lc rgb '${colours[i]}'" "$name")")
    done
    for ((i = 0; i < count; i++)); do
        marks=$(($(grep -c '^eval' "${files[i]}" || true) / (count > 1 ? 16 : 30) + 1))
        if [ $count -gt 1 ]; then
            parts+=("$(curve $i eval "$1" '$3' "points pt 7 ps 1.4*$dot lc rgb 'white' pi $marks")")
            parts+=("$(curve $i eval "$1" '$3' "points pt 7 ps $dot lc rgb '${colours[i]}' pi $marks")")
        else
            marks="linespoints lw 1.6 pt 7 ps $dot pi $marks lc rgb '${colours[1]}'"
            parts+=("$(curve $i eval "$1" '$3' "$marks" 'validation loss')")
        fi
    done
    [ $count -eq 1 ] || parts+=("NaN with points pt 7 ps $dot lc rgb '#555555' title 'validation loss'")
}

if [ -z "$title" ] && [ $count -eq 1 ]; then
    ranks=$(fact ranks)
    title="${names[0]}: $(fact parameters | awk '{ printf($1 < 1e7 ? "%.1fM" : "%.0fM", $1 / 1e6) }')"
    title+=" parameters on $(fact dataset), $(fact dtype), $ranks rank$([ "$ranks" = 1 ] || echo s)"
    title+=", $(fact backend)"
elif [ -z "$title" ]; then
    title=$(printf ', %s' "${names[@]}")
    title=${title:2}
fi
x=\$1/$tokens_unit
case $output in
*.png) terminal=pngcairo fonts='DejaVu Sans' size=13 dot=0.9 ;;
*) terminal='svg dynamic' fonts='DejaVu Sans,Helvetica,Arial,sans-serif' size=16 dot=0.6 ;;
esac
{
    cat <<END_OF_GNUPLOT
set terminal $terminal font '$fonts,$size' size 1600,1120 background rgb 'white' noenhanced
set output $(quoted "$work/picture")
set encoding utf8
set multiplot layout 2,2 title $(quoted "$title") font ',$((size + 4))' offset 0,-0.4 \
    margins 0.065,0.98,0.075,0.905 spacing 0.08,0.125
set border 3 lc rgb '#666666' lw 1
set tics nomirror out scale 0.6 textcolor rgb '#333333'
set grid lc rgb '#e4e4e4' lt 1 lw 1
set title font ',$((size + 1))' offset 0,-0.3
set key top right samplen 2.2 spacing 1.2
set format y '$loss_format'
set yrange [$low:$high]
set xrange [0:1.01*$tokens_most/$tokens_unit]
END_OF_GNUPLOT
    # A label stands on that side of its line where the curves do not end.
    number=0
    while read -r loss label; do
        [ -n "$loss" ] || continue
        number=$((number + 1))
        echo "set arrow $number from graph 0,first $loss to graph 1,first $loss nohead dt 2 lw 1.4" \
            "lc rgb '#777777' back"
        echo "set label $number $(quoted "$label") at graph 0.99,first $loss right font ',$((size - 1))'" \
            "textcolor rgb '#444444' offset 0,($loss > $free ? 0.6 : -0.6)"
    done <<<"$suiting"
    losses "$x"
    panel "Loss over tokens" "$tokens_name" "loss (nats per token)" "${parts[@]}"
    losses "\$2/$time_unit"
    echo "set xrange [0:1.01*$seconds_most/$time_unit]"
    panel "Loss over time" "$time_name" "loss (nats per token)" "${parts[@]}"

    echo "unset arrow; unset label; set yrange [0:*]; set format y '%g'; set offsets 0,0,graph 0.1,0"
    echo "set xrange [0:1.01*$tokens_most/$tokens_unit]"
    parts=()
    for ((i = 0; i < count && count <= 3; i++)); do
        parts+=("$(curve $i step "$x" "\$5/$rate_unit" "lines lw 0.8 lc rgb '#B0${colours[i]#?}'")")
    done
    for ((i = 0; i < count; i++)); do
        name=${names[i]}
        [ $count -gt 1 ] || name=
        parts+=("$(curve $i step "$x" "\$6/$rate_unit" "lines lw 2 lc rgb '${colours[i]}'" "$name")")
    done
    echo "set yrange [0:$rate_most/$rate_unit*(1.2 + ($count > 1) * 0.08 * $count)]"
    panel "Throughput" "$tokens_name" "$rate_name" "${parts[@]}"

    parts=()
    for ((i = 0; i < count; i++)); do
        name=${names[i]}
        if [ "$is_shared" = 1 ]; then
            grep -q '^facts ranks 1$' "${files[i]}" && continue
            [ $count -gt 1 ] || name='exposed: what backward does not hide'
            parts+=("$(curve $i step "$x" '$8' "lines lw 2 lc rgb '${colours[i]}'" "$name")")
            [ $count -gt 1 ] || name='all of it'
            [ $count -eq 1 ] || name=
            parts+=("$(curve $i step "$x" '$7' "lines lw 1.4 dt 2 lc rgb '${colours[i]}'" "$name")")
        else
            [ $count -gt 1 ] || name=
            parts+=("$(curve $i step "$x" '$9' "lines lw 1.2 lc rgb '${colours[i]}'" "$name")")
        fi
    done
    echo "set yrange [0:*]"
    if [ "$is_shared" = 1 ]; then
        echo "set offsets 0,0,graph 0.3,0"
        [ $count -eq 1 ] || parts+=("NaN with lines lw 1.4 dt 2 lc rgb '#555555' title 'dashed: all of it'")
        panel "Communication between ranks" "$tokens_name" "% of an update's time" "${parts[@]}"
    else
        panel "Norm of the gradient, before clipping" "$tokens_name" "norm" "${parts[@]}"
    fi
    echo "unset multiplot"
} >"$work/figure.gp"
gnuplot "$work/figure.gp" >"$work/said" 2>&1 ||
    fail "$output: gnuplot failed: $(sed 's/^ *//; /^$/d' "$work/said" | tail -n 2 | paste -sd' ')"
{ cp "$work/picture" "$output.tmp.$$" && mv "$output.tmp.$$" "$output"; } 2>"$work/said" || {
    rm -f "$output.tmp.$$"
    fail "$output: cannot be written: $(sed 's/.*: //' "$work/said" | head -n 1)"
}
echo "$output"
