#!/usr/bin/env bash
# libshoal.so.1 exports the functions of its header, each with the version SHOAL_1, and nothing else:
# no symbol of the libraries that it is made of can be taken for a program's own, or take the place of
# one. It finds all that it needs, stays loaded, and says nothing when it is.
set -euo pipefail
library=src/libshoal/libshoal.so
header=src/libshoal/shoal.h
fail() { echo "symbols_test: $*" >&2; exit 1; }

declared=$(grep -oE '\bshoal_[a-z_]+\(' "$header" | tr -d '(' | sort -u)
[ "$(wc -l <<<"$declared")" -ge 18 ] || fail "the header declares too little: $declared"
exported=$(nm -D --defined-only --with-symbol-versions "$library" | awk '$2 != "A" { print $3 }' | sort)
want=$(sed 's/$/@@SHOAL_1/' <<<"$declared")
[ "$exported" = "$want" ] || fail "exports are not those of the header: $(diff <(echo "$want") <(echo "$exported"))"
listed=$(grep -oE '^ *shoal_[a-z_]+;' src/libshoal/libshoal.map | tr -d ' ;' | sort)
[ "$listed" = "$declared" ] || fail "libshoal.map lists other functions"
# The check above would pass if nm read nothing. (Whole outputs are kept: grep -q may end before nm does.)
undefined=$(nm -DC --undefined-only "$library")
grep -q 'google::' <<<"$undefined" || fail "nm does not see libprotobuf's symbols"

dynamic=$(readelf -d "$library")
grep -q 'SONAME.*\[libshoal\.so\.1\]' <<<"$dynamic" || fail "another soname: $dynamic"
grep -q 'NODELETE' <<<"$dynamic" || fail "may be unloaded: $dynamic"
grep -qE 'RPATH|RUNPATH' <<<"$dynamic" && fail "has a path of the build: $dynamic"
# Generated code checks texts by a function that does not write to the process's log (quiet_utf8.cc).
grep -q 'internal::VerifyUTF8(' <<<"$undefined" && fail "peers can write to the log"

# All symbols at once (RTLD_NOW), in a process that has nothing of them.
said=$(/usr/bin/python3 -c '
import ctypes, os, sys
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)
library.shoal_version.restype = ctypes.c_char_p
sys.stdout.write(library.shoal_version().decode())' "./$library" 2>&1)
[[ $said =~ ^[0-9]+\.[0-9]+\.[0-9]+(-dev)?$ ]] || fail "loading it said: $said"
