#!/usr/bin/env bash
# Builds the example functions of all languages, of the named languages, or single ones.
#
#   examples/functions/build.sh [--out FOLDER] [LANGUAGE | LANGUAGE/FUNCTION]...
#   examples/functions/build.sh                         all for which the tools are installed
#   examples/functions/build.sh rust c                  two languages; a missing tool is an error
#   examples/functions/build.sh python/transform        one function
#
# Writes FOLDER/LANGUAGE/FUNCTION.wasm. FOLDER is target/functions by default. Tools from npm and
# PyPI are installed to FOLDER/tools.
set -euo pipefail
caller=$PWD
cd "$(dirname "$0")"
root=$(cd ../.. && pwd)

languages=(rust c go assemblyscript javascript python)
declare -A functions=(
    [rust]="send receive receive_checksum forward transform answer"
    [c]="send receive receive_checksum transform send_reference receive_reference"
    [go]="send receive receive_checksum transform"
    [assemblyscript]="send receive receive_checksum transform"
    [javascript]="send receive transform"
    [python]="send receive_checksum transform"
)
# How to install the tools of each language.
declare -A how=(
    [rust]="rustup target add wasm32-wasip1, or Debian's packages rustc, libstd-rust-dev-wasm32 and lld"
    [c]="Debian's packages clang, lld, wasi-libc and libclang-rt-dev-wasm32"
    [go]="Go 1.24 or later"
    [assemblyscript]="Node.js 20 or later and npm"
    [javascript]="Node.js 20 or later and npm"
    [python]="Python 3.10 or later with venv"
)
componentize_py=0.25.1

# Each `has_LANGUAGE` checks whether the tools of the language are installed.

has_rust() { find_rustc >/dev/null; }
build_rust() {
    local rustc target libs=$out/rust/libs
    read -r rustc target < <(find_rustc)
    mkdir -p "$libs"
    # Direct calls of rustc: Debian's cargo is too old to read the SDK's workspace.
    local flags=(--edition 2021 --target "$target" -C opt-level=3 -C panic=abort -C strip=symbols
        --remap-path-prefix "$root=." -L "dependency=$libs")
    "$rustc" "${flags[@]}" --crate-type rlib --crate-name estafette_guest --out-dir "$libs" \
        "$root/crates/guest/src/lib.rs"
    flags+=(--extern "estafette_guest=$libs/libestafette_guest.rlib")
    "$rustc" "${flags[@]}" --crate-type rlib --crate-name estafette_example_functions --out-dir "$libs" \
        rust/src/lib.rs
    flags+=(--extern "estafette_example_functions=$libs/libestafette_example_functions.rlib")
    local function
    for function in "$@"; do
        "$rustc" "${flags[@]}" -C lto --crate-type bin --crate-name "$function" -o "$out/rust/$function.wasm" \
            "rust/src/bin/$function.rs"
    done
}
# Prints a rustc and its WASI target: the rustc in PATH, or else Debian's.
find_rustc() {
    local rustc target
    for rustc in rustc /usr/bin/rustc; do
        for target in wasm32-wasip1 wasm32-wasi; do
            if ls "$("$rustc" --print target-libdir --target "$target" 2>/dev/null)"/libstd-*.rlib >/dev/null 2>&1; then
                echo "$rustc $target"
                return
            fi
        done
    done
    return 1
}

has_c() { command -v clang && command -v wasm-ld && [ -d /usr/include/wasm32-wasi ]; } >/dev/null
build_c() {
    local function sources
    for function in "$@"; do
        sources=("c/$function.c")
        case $function in
        receive | receive_checksum) sources+=(c/estafette.c c/message.c -mexec-model=reactor) ;;
        receive_reference) sources+=(c/message.c -mexec-model=reactor) ;;
        transform) sources+=(c/estafette.c -mexec-model=reactor) ;;
        *) sources+=(c/message.c) ;;
        esac
        clang --target=wasm32-wasi --sysroot=/usr -O2 -Wall -Wextra -Werror -Wl,--strip-all \
            -o "$out/c/$function.wasm" "${sources[@]}"
    done
}

has_go() { command -v go >/dev/null; }
build_go() {
    local function mode
    for function in "$@"; do
        # A sender is a program; a processor is a library, whose `main` is not called.
        [ "$function" = send ] && mode=default || mode=c-shared
        (cd go && GOOS=wasip1 GOARCH=wasm go build -trimpath -buildvcs=false -ldflags="-s -w" -buildmode="$mode" \
            -o "$out/go/$function.wasm" "./$function")
    done
}

has_assemblyscript() { command -v node && command -v npm; } >/dev/null
build_assemblyscript() {
    local function start tools
    npm_tools assemblyscript
    for function in "$@"; do
        [ "$function" = send ] && start=_start || start=_initialize
        (cd assemblyscript && "$tools/asc" "$function.ts" -O3 --use abort=wasi/abort --exportStart "$start" \
            -o "$out/assemblyscript/$function.wasm")
    done
}

has_javascript() { has_assemblyscript; }
build_javascript() {
    local function tools
    npm_tools javascript
    for function in "$@"; do
        (cd javascript && "$tools/componentize-js" "$function.js" --wit "$root/wit" -n function \
            --disable http --disable fetch-event -o "$out/javascript/$function.wasm")
    done
}
# Installs the packages of a language's package.json. Sets `tools` to the folder of their commands.
npm_tools() {
    tools=$out/tools/$1
    mkdir -p "$tools"
    if ! cmp -s "$1/package.json" "$tools/package.json" || [ ! -d "$tools/node_modules" ]; then
        cp "$1/package.json" "$tools/"
        npm install --silent --no-package-lock --no-audit --no-fund --prefix "$tools" >&2
    fi
    tools=$tools/node_modules/.bin
}

has_python() { python3 -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 10))' 2>/dev/null; }
build_python() {
    local function tools=$out/tools/python-$componentize_py
    if [ ! -x "$tools/bin/componentize-py" ]; then
        python3 -m venv "$tools"
        "$tools/bin/pip" install --quiet --disable-pip-version-check "componentize-py==$componentize_py"
    fi
    for function in "$@"; do
        (cd python && "$tools/bin/componentize-py" --quiet -d "$root/wit" -w function componentize "$function" \
            -o "$out/python/$function.wasm")
    done
}

# Builds a language (`rust`) or a function (`rust/send`).
build() {
    local language=${1%%/*} names
    if [ -z "${functions[$language]:-}" ]; then
        echo "no language $language: there are ${languages[*]}" >&2
        return 2
    fi
    read -ra names <<<"${functions[$language]}"
    if [ "$1" != "$language" ]; then
        names=("${1#*/}")
        if [[ " ${functions[$language]} " != *" ${names[0]} "* ]]; then
            echo "no function ${names[0]} in $language: there are ${functions[$language]}" >&2
            return 2
        fi
    fi
    if ! "has_$language"; then
        echo "$language needs ${how[$language]}" >&2
        return 3
    fi
    mkdir -p "$out/$language"
    local begin=$SECONDS
    "build_$language" "${names[@]}"
    echo "$1: $((SECONDS - begin)) s, ${out#"$root"/}/$language: ${names[*]}"
}

out=$root/target/functions
if [ "${1:-}" = --out ]; then
    out=$(cd "$caller" && mkdir -p "$2" && cd "$2" && pwd)
    shift 2
fi

if [ $# -gt 0 ]; then
    for name in "$@"; do build "$name"; done
    exit
fi
for name in "${languages[@]}"; do
    # A language without its tools is skipped, with a message.
    if "has_$name"; then build "$name"; else build "$name" || true; fi
done
