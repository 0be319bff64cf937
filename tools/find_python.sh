#!/bin/sh
# Print the path of the newest usable Python (3.11 or later, with venv and pip), or say how to get one.
#
# PYTHON=/path/to/python overrides the search.  Looked at: programs on PATH, then the directories where pyenv, asdf,
# mise, uv and Homebrew keep the versions they install, since their shims fail for a version that is not activated.
set -u

minimum=11
newest=14   # the newest that the dependencies have wheels for; later ones are taken only when there is no other

# Prints "<rank> <path>" when the candidate is usable; else notes on file descriptor 3 why a recent enough one is not.
probe() {
    [ -x "$1" ] || return 0
    answer=$("$1" -c '
import sys
major, minor = sys.version_info[:2]
if major != 3 or minor < int(sys.argv[1]) or sys.version_info.releaselevel != "final":
    sys.exit(0)
if not getattr(sys, "_is_gil_enabled", lambda: True)():
    sys.exit(0)
try:
    import ctypes, ensurepip, sqlite3, ssl, venv, zlib
except ImportError as error:
    print("broken", error.name)
    sys.exit(0)
print(minor if minor <= int(sys.argv[2]) else int(sys.argv[1]) - 1)
' "$minimum" "$newest" 2>/dev/null) || return 0
    case "$answer" in
        "") ;;
        broken*) echo "  $1 lacks the module ${answer#broken }" >&3 ;;
        *) echo "$answer $1" ;;
    esac
}

candidates() {
    for name in python3.14 python3.13 python3.12 python3.11 python3 python; do
        command -v "$name" 2>/dev/null
        [ -x "/usr/bin/$name" ] && echo "/usr/bin/$name"
    done
    for path in "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python "${ASDF_DATA_DIR:-$HOME/.asdf}"/installs/python/3.*/bin/python \
        "${MISE_DATA_DIR:-$HOME/.local/share/mise}"/installs/python/3.*/bin/python /opt/homebrew/bin/python3.1? /usr/local/bin/python3.1?; do
        [ -x "$path" ] && echo "$path"
    done
    if command -v uv >/dev/null 2>&1; then
        for minor in 14 13 12 11; do
            uv python find --no-project "3.$minor" 2>/dev/null
        done
    fi
}

if [ -n "${PYTHON:-}" ]; then
    chosen=$(probe "$(command -v "$PYTHON" || echo "$PYTHON")" 3>&2)
    if [ -n "$chosen" ]; then
        echo "${chosen#* }"
        exit 0
    fi
    echo "PYTHON=$PYTHON is no Python >= 3.$minimum with the modules venv and pip; correct it or unset it." >&2
    exit 1
fi

notes=$(mktemp)
trap 'rm -f "$notes"' EXIT
chosen=$(candidates | awk '!seen[$0]++' | while IFS= read -r path; do probe "$path" 3>>"$notes"; done | sort -s -n -r -k 1,1 | head -n 1)
if [ -n "$chosen" ]; then
    echo "${chosen#* }"
    exit 0
fi

{
    echo "No usable Python found: arraystore needs Python 3.$minimum or later, with the modules venv and pip."
    if [ -s "$notes" ]; then
        echo "Found, but incomplete:"
        cat "$notes"
    fi
    echo "Get one with, for instance:"
    echo "  Debian, Ubuntu:  sudo apt install python3 python3-venv python3-pip"
    echo "  macOS:           brew install python@3.13"
    echo "  pyenv:           pyenv install 3.13"
    echo "  uv:              uv python install 3.13"
    echo "or name one:       make PYTHON=/path/to/python3.13 ..."
} >&2
exit 1
