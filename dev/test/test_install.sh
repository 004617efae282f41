#!/usr/bin/env bash
# make install as a packager meets it: what it writes below DESTDIR, that this runs from there, and that
# uninstall leaves nothing; `make help` lists every target for people; --version and --help of each program.
#   PROGRAMS=build/mpi1 dev/test/test_install.sh        prints TAP
set -u
. "$(dirname "$0")/tap.bash"
export LC_ALL=C
root=$(cd "$(dirname "$0")/../.." && pwd)
programs=$(cd "${PROGRAMS:-.}" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1

quiet_make() {
    make -C "$root" --no-print-directory "$@" >stdout 2>stderr
}

# ---- install -----------------------------------------------------------------------------------------------
[ -e "$root/train_gpt2cu" ] && cuda=train_gpt2cu || cuda=
recipes=$(cd "$root/scripts/config" && printf 'share/train_gpt2/config/%s\n' *.conf)
expected=$(printf '%s\n' bin/train_gpt2 bin/tokenize ${cuda:+bin/$cuda} \
    share/man/man1/{train_gpt2,train_gpt2cu,tokenize}.1 \
    share/bash-completion/completions/{train_gpt2,train_gpt2cu,tokenize} \
    "$recipes" | sort)
installed=$work/stage/opt/gpt2
quiet_make install PREFIX=/opt/gpt2 DESTDIR="$work/stage"
result $? "make install"
[ "$(cd "$work/stage" && find . -type f -o -type l | sed 's|^\./opt/gpt2/||' | sort)" = "$expected" ]
result $? "everything lies below DESTDIR/PREFIX, and nothing else does"
cmp -s "$programs/train_gpt2" "$installed/bin/train_gpt2" && [ -x "$installed/bin/tokenize" ]
result $? "the programs are those that were built"
echo 'Once upon a time.' >text
(cd / && "$installed/bin/tokenize" -o "$work/data/text" "$work/text") 2>stderr &&
    "$installed/bin/train_gpt2" "$installed/share/train_gpt2/config/shakespeare.conf" --dataset nowhere \
        2>stderr
grep -q 'data/nowhere/train' stderr
result $? "they run from there, with an installed recipe"
PATH=$installed/bin:$PATH bash -c '
    . "$1/share/bash-completion/completions/train_gpt2cu"
    complete -p train_gpt2 train_gpt2cu >/dev/null || exit 1
    COMP_WORDS=(train_gpt2 --lr_schedule = co) COMP_CWORD=3
    _train_gpt2
    [ "${COMPREPLY[*]}" = "cosine constant" ] || exit 1
    COMP_WORDS=(train_gpt2 --gradient) COMP_CWORD=1
    _train_gpt2
    [ "${COMPREPLY[*]}" = --gradient_accumulation_steps= ] || exit 1
    . "$1/share/bash-completion/completions/tokenize"
    COMP_WORDS=(tokenize --header = "") COMP_CWORD=3
    _tokenize
    [ "${COMPREPLY[*]}" = "llmc none" ]' bash "$installed"
result $? "completions of both programs"
for page in train_gpt2 train_gpt2cu tokenize; do
    file=$installed/share/man/man1/$page.1
    : >stderr
    if command -v groff >/dev/null && { ! groff -man -ww -z "$file" 2>stderr || [ -s stderr ]; }; then
        result 1 "$page.1: groff finds nothing wrong"
        continue
    fi
    bad=0
    while read -r option; do # as roff has it: dashes are minus signs
        grep -qF -- "${option//-/\\-}" "$file" || { echo "# $option is missing"; bad=1; }
    done < <("$installed/bin/${page%cu}" --help | grep -oE '^  --?[a-z_-]+' | tr -d ' ')
    result $bad "$page.1: every option, and groff finds nothing wrong"
done
quiet_make uninstall PREFIX=/opt/gpt2 DESTDIR="$work/stage" &&
    [ -z "$(find "$work/stage" -type f -o -type l)" ] && [ ! -e "$installed/share/train_gpt2" ] &&
    [ -d "$installed/bin" ]
result $? "make uninstall removes all of it, and no folder that others use"

# ---- what programs tell of themselves ----------------------------------------------------------------------
for program in train_gpt2 test_gpt2 data_prep/tokenize; do
    name=$(basename "$program")
    "$programs/$program" --version >stdout 2>stderr &&
        head -n 1 stdout | grep -qE "^$name [0-9]+\.[0-9]+\.[0-9]+$" &&
        grep -qE '^compiler: .*[0-9]\.[0-9]' stdout && [ ! -s stderr ]
    result $? "$name --version: version and compiler"
done
"$programs/train_gpt2" --version >stdout && grep -qE '^CPU kernels that run here, best first: [a-z]' stdout &&
    grep -qE '^MPI: (Open MPI|left out)' stdout
result $? "train_gpt2 --version: kernels and MPI"
for columns in 60 100; do
    COLUMNS=$columns "$programs/train_gpt2" --help >stdout
    # But for lines that stay as they are.
    widest=$(grep -vE '^(usage|       mpirun|  [a-zA-Z_/])' stdout |
        awk '{ n = length > n ? length : n } END { print n }')
    [ "$widest" -le $columns ] && [ "$widest" -gt $((columns - 15)) ]
    result $? "--help fits $columns columns"
done
"$programs/train_gpt2" --help=optim >stdout && [ "$(head -n 1 stdout)" = optim ] &&
    grep -q -- --beta2= stdout && ! grep -q -- --batch_size= stdout
result $? "--help=optim: one section"
! "$programs/train_gpt2" --help=everything >stdout 2>stderr &&
    grep -q '^train_gpt2: --help=everything: expected run|data|' stderr
result $? "--help of no section names them"

# ---- make help ---------------------------------------------------------------------------------------------
quiet_make help
bad=0
for target in $(sed -nE 's/^\.PHONY: //p' "$root/Makefile" "$root/scripts/install.mk" "$root/dev/dev.mk"); do
    case $target in FORCE | has-nvcc) continue ;; esac
    grep -qE "^  make $target +[^ ]" stdout || { echo "# $target is missing"; bad=1; }
done
result $bad "make help lists every target"
bad=0
for switch in $(sed -nE 's/^([A-Z_]+) +\?= .*/\1/p' "$root/Makefile" "$root/scripts/install.mk"); do
    case $switch in MACHINE | OBJCOPY | INSTALL) continue ;; esac
    grep -q "$switch=" stdout || { echo "# $switch is missing"; bad=1; }
done
result $bad "make help lists every switch"
end_of_tests
