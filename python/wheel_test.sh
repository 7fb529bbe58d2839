#!/usr/bin/env bash
# The Python package as users have it: a wheel, built and installed into a new environment, with libshoal.so.1, against
# a deployment of two real parties (tests/test_shoal.py). Its types are checked, strictly.
set -euo pipefail
here="$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")"
tools="$here/../.deps/venv/bin/python"
fail() {
  echo "wheel_test: $*" >&2
  tail -n 20 "$TEST_TMPDIR"/chain/party-?.log >&2 2>/dev/null || true
  exit 1
}
"$tools" -c 'import build, mypy, setuptools, wheel' 2>/dev/null ||
  fail "no build, mypy, setuptools or wheel in $here/../.deps/venv; run: scripts/setup --test"
unset PYTHONPATH PYTHONHOME HOME XDG_CONFIG_HOME SHOAL_CONFIG
export SHOAL_BIN=$PWD/src PYTHONDONTWRITEBYTECODE=1

# Nothing is written beside the sources.
mkdir "$TEST_TMPDIR/sources"
cp -rL python/pyproject.toml python/README.md python/shoal "$TEST_TMPDIR/sources"
chmod -R u+w "$TEST_TMPDIR/sources"
"$tools" -m build --wheel --no-isolation --outdir "$TEST_TMPDIR/dist" "$TEST_TMPDIR/sources" >"$TEST_TMPDIR/build.log" 2>&1 ||
  fail "no wheel: $(cat "$TEST_TMPDIR/build.log")"
wheel=$(echo "$TEST_TMPDIR"/dist/*.whl)
[[ $wheel == */shoal-*-py3-none-any.whl ]] || fail "another wheel: $wheel"
/usr/bin/python3 -m venv "$TEST_TMPDIR/venv"
python=$TEST_TMPDIR/venv/bin/python
"$python" -m pip install --quiet --no-index --disable-pip-version-check "$wheel"
package=$("$python" -c 'import os, shoal; print(os.path.dirname(shoal.__file__))')
[[ $package == "$TEST_TMPDIR"/venv/* ]] || fail "the package is not the wheel's: $package"
[ -e "$package/py.typed" ] || fail "no py.typed in the wheel"

# Without the library it says what is missing.
said=$("$python" -c 'import shoal; shoal.open()' 2>&1) && fail "it works without a library"
[[ $said == *"install Debian's package libshoal1, or set SHOAL_LIBRARY"* ]] || fail "said: $said"

# The types of the package, and those that it gives a program.
(cd "$TEST_TMPDIR/sources" && "$tools" -m mypy --strict --cache-dir="$TEST_TMPDIR/types" shoal) || fail "types"
MYPYPATH=$(dirname "$package") "$tools" -m mypy --strict --cache-dir="$TEST_TMPDIR/types" \
  python/tests/types_of_a_program.py || fail "types of a program"

mkdir "$TEST_TMPDIR/lib"
cp src/libshoal/libshoal.so "$TEST_TMPDIR/lib/libshoal.so.1"
export SHOAL_LIBRARY=$TEST_TMPDIR/lib/libshoal.so.1

source scripts/free-ports.sh
free_ports 3
chain=$TEST_TMPDIR/chain
for i in $(seq 200); do printf 'key-%d\tvalue %d\n' "$i" $((i * i)); done >"$TEST_TMPDIR/records.tsv"
printf 'bytes-\\xff\t\\xff\\x00\\xfe\n' >>"$TEST_TMPDIR/records.tsv"
scripts/local-chain create "$chain" --parties 2 --port "$port" --protect lookup --pad 8 \
  --rounds 'onions_window_s: 60 onions_count: 8 queries_window_s: 60 queries_count: 8 answers_window_s: 60' \
  -- --tsv "$TEST_TMPDIR/records.tsv" --name squares --row-bytes 64 >/dev/null
for engine in hintless piano; do scripts/local-chain engine "$chain" "$engine" >/dev/null; done
pids=()
trap 'kill "${pids[@]}" 2>/dev/null || true; wait' EXIT
for party in 2 1; do
  : >"$chain/party-$party.log"
  src/shoald/shoald --config "$chain/party-$party.textproto" --engine chain --engine hintless --engine piano \
    >>"$chain/party-$party.log" 2>&1 &
  pids+=($!)
  until grep -q 'listens on' "$chain/party-$party.log"; do
    kill -0 "${pids[-1]}" 2>/dev/null || fail "party $party did not start"
    sleep 0.1
  done
done
# ResourceWarning and the like are errors, and so is anything that the library prints.
SHOAL_TEST_CHAIN=$chain "$python" -X dev -W error python/tests/test_shoal.py --verbose 2>&1 || fail "the tests failed"
