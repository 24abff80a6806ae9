#!/usr/bin/env bash
# Makes .venv ready for the other make targets, or says in words why it could not.
#
# Ready means that .venv/.ready says what this checkout needs. The file is written last and removed first, so a .venv
# without it is unfinished (Ctrl-C, full disk) and is made anew. Set-up that is already done costs milliseconds.
#
#   PYTHON  the interpreter to build on; otherwise the first fit one of python3, python3.13, python3.12, python3.11
#   TORCH   what to hand to pip for torch; otherwise the pinned CPU build. Remembered until the next TORCH=...
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly torch_version=2.13.0
readonly venv=.venv ready=.venv/.ready log=.venv/setup.log lock=requirements/lock.txt

say() { printf 'set-up: %s\n' "$*" >&2; }

give_up() {
    printf '\nset-up stopped: %s\n' "$1" >&2
    shift
    (($# == 0)) || printf '  %s\n' "$@" >&2
    exit 1
}

# --- what is wanted, and whether it is there ---------------------------------------------------------------------

# One line each: the files that decide what is installed, where the checkout lies, which torch.
wanted() {
    cat "$lock" pyproject.toml scripts/setup.sh | cksum
    pwd
    printf '%s\n' "$torch"
}

remembered_torch() { if [[ -f $ready ]]; then sed -n 3p "$ready"; fi; }

version_of() { "$1" -c 'import sys; print(sys.version)' 2>/dev/null; }

asked_for_other_python() { [[ -n ${PYTHON:-} && $(version_of "$PYTHON") != $(version_of $venv/bin/python) ]]; }

is_ready() { [[ -f $ready && -x $venv/bin/python && $(<"$ready") == "$(wanted)" ]] && ! asked_for_other_python; }

# A finished .venv of the same place, Python and torch takes the changes of a new lock; anything else starts afresh.
can_be_updated() {
    [[ -f $ready && -x $venv/bin/python && $(sed -n 2,3p "$ready") == "$(wanted | sed -n 2,3p)" ]] &&
        ! asked_for_other_python
}

# --- the interpreter ---------------------------------------------------------------------------------------------

is_new_enough() { "$1" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; }

can_make_venvs() { "$1" -c 'import venv, ensurepip' 2>/dev/null; }

# Sets `python`.
find_python() {
    local candidate seen=() bare=()
    local candidates=(python3 python3.13 python3.12 python3.11)
    [[ -z ${PYTHON:-} ]] || candidates=("$PYTHON")
    for candidate in "${candidates[@]}"; do
        version_of "$candidate" >/dev/null || continue
        seen+=("$candidate $("$candidate" -c 'import platform; print(platform.python_version())')")
        is_new_enough "$candidate" || continue
        bare+=("$candidate")
        can_make_venvs "$candidate" || continue
        python=$candidate
        return
    done
    ((${#bare[@]} == 0)) || give_up "${bare[0]} has no venv module with pip, which some systems ship apart." \
        "Debian, Ubuntu: install the package python3-venv (as root: apt-get install python3-venv)." \
        "Elsewhere: a Python from your package manager, or PYTHON=/path/to/python3 make ..."
    ((${#seen[@]} == 0)) || give_up "Python 3.11 or newer is needed; found only ${seen[*]}." \
        "Install a newer one (Debian: apt-get install python3 python3-venv; macOS: brew install python)," \
        "or name one that you have: make PYTHON=/path/to/python3.12 ..."
    give_up "no Python found under the name(s) ${candidates[*]}; 3.11 or newer is needed." \
        "Debian, Ubuntu: apt-get install python3 python3-venv. macOS: brew install python." \
        "Or name one that you have: make PYTHON=/path/to/python3 ..."
}

# --- installing --------------------------------------------------------------------------------------------------

# The log is that of the latest call, which is the one to explain.
install() {
    rm -f "$log"
    PIP_USER=no $venv/bin/python -m pip --disable-pip-version-check install --no-input --no-compile --log "$log" "$@"
}

log_says() { grep -qiE "$1" "$log"; }

# pip's second form of words is that of a place with constraints of its own.
no_such_build() { log_says 'No matching distribution found for torch|ResolutionImpossible'; }

# Turns a failed pip run into advice. $1: what was being installed.
explain() {
    local where="The whole log is $log."
    if log_says 'No space left on device|Errno 28|Disk quota exceeded'; then
        give_up "the disk is full while installing $1." \
            "The CPU set-up takes about 2 GB beneath $PWD/$venv, and room for downloads in ${TMPDIR:-/tmp}." "$where"
    elif log_says 'DO NOT MATCH THE HASHES'; then
        give_up "a download is not the file that $lock was made from (damaged, or replaced on the way)." \
            "Try again with an empty pip cache ($venv/bin/python -m pip cache purge)." "$where"
    elif log_says 'connection error|NewConnectionError|ConnectTimeout|ReadTimeout|ProxyError|SSLError|Max retries exceeded'; then
        give_up "the package index could not be reached while installing $1." \
            "Set-up needs the network once. Behind a proxy or with a mirror, pip's own settings are used:" \
            "HTTPS_PROXY, PIP_INDEX_URL, PIP_CERT, PIP_FIND_LINKS, or pip.conf." "$where"
    elif [[ $1 == torch ]] && no_such_build; then
        give_up "pip finds no $torch for $(version_of $venv/bin/python | head -n 1)." \
            "Name another Python (make PYTHON=python3.12 ...) or another build (make TORCH=... , see make help)." "$where"
    fi
    give_up "pip could not install $1." "$where"
}

# The CPU build carries a local version label on Linux and none on macOS. Without an index that has it, pip can only
# take what its index calls by the plain version, which on Linux brings CUDA along.
install_default_torch() {
    if [[ $(uname -s) == Linux ]]; then
        install "torch==$torch_version+cpu" && return
        no_such_build || return 1
        say "pip knows no place with the CPU build torch==$torch_version+cpu, so it takes torch==$torch_version, which on"
        say "Linux may bring CUDA libraries of several GB. To avoid that, stop here and point pip to PyTorch's index of CPU"
        say "wheels (its address is on PyTorch's 'Start locally' page): make PIP_EXTRA_INDEX_URL=<address> ..."
    fi
    install "torch==$torch_version"
}

install_torch() {
    local words
    if [[ $torch == default ]]; then install_default_torch; else
        read -ra words <<<"$torch"
        install "${words[@]}"
    fi
}

install_all() {
    # Everything but torch is in the lock, torch's own needs included: with --no-deps nothing else can slip in, and
    # torch then finds its needs met.
    install --no-deps --require-hashes -r "$lock" || explain "the packages of $lock"
    install_torch || explain "torch"
    install --quiet --no-deps --no-build-isolation --editable . || explain "dspark itself"
    # This also compiles what every command imports, even where the environment keeps Python from doing so later.
    PYTHONDONTWRITEBYTECODE='' $venv/bin/python -c 'import torch, transformers, dspark.evaluation, dspark.recipes' \
        2>>"$log" || give_up "torch or transformers do not import." \
        "Is the build of torch right for this machine? (make help, TORCH=...)" "The last lines of $log:" \
        "$(tail -n 3 "$log")"
}

# Two calls at the same time: the later one waits. The lock is on this very file and ends with the process.
one_at_a_time() {
    command -v flock >/dev/null || return 0
    exec 9<scripts/setup.sh
    flock -n 9 || { say "waiting for another set-up of this checkout" && flock 9; }
}

main() {
    torch=${TORCH:-$(remembered_torch)}
    torch=${torch:-default}
    is_ready && return
    one_at_a_time
    is_ready && return
    trap 'printf "\nset-up interrupted: the next call starts it anew.\n" >&2; exit 130' INT TERM
    if can_be_updated; then
        say "the lock or pyproject.toml changed: updating $venv"
        rm -f "$ready"
    else
        find_python
        [[ ! -e $venv ]] || say "$venv is unfinished or for something else: starting it anew"
        say "making $venv with $python; once, about 1.3 GB and 2 minutes with a fast network"
        "$python" -m venv --clear $venv || give_up "$python could not make $venv." "Is the folder writable, the disk full?"
    fi
    install_all
    wanted >"$ready"
    say "done"
}

main
