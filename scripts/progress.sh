# To be sourced: how far a long command is, on standard error. On a terminal one line that changes; elsewhere a line a
# minute, so that a log shows that something happens, and does not fill.

progress_begin() { progress_what=$1 progress_start=$SECONDS progress_told=$SECONDS progress_shown=; }

# progress_at DONE TOTAL [UNIT]: so much is done, of so much, or of nobody knows how much where TOTAL is 0.
progress_at() {
  local done=$1 total=$2 unit=${3:-steps} spent=$((SECONDS - progress_start)) left='' line
  if [ "$total" -eq 0 ]; then
    line="$progress_what: $done $unit in $((spent / 60)):$(printf %02d $((spent % 60)))"
  else
    # The first ones tell little about the others.
    if [ "$spent" -ge 10 ] && [ $((done * 20)) -ge "$total" ]; then
      left=$((spent * (total - done) / done))
      if [ "$left" -lt 50 ]; then left=', less than a minute left'; else left=", about $(((left + 30) / 60)) min left"; fi
    fi
    line="$progress_what: $done of $total $unit$left"
  fi
  if [ -t 2 ]; then
    printf '\r\033[K%.*s' "$((${COLUMNS:-80} - 1))" "$line" >&2
    progress_shown=1
  elif [ $((SECONDS - progress_told)) -ge 60 ]; then
    printf '%s\n' "$line" >&2
    progress_told=$SECONDS
  fi
}

progress_end() { [ -z "$progress_shown" ] || printf '\r\033[K' >&2; }

# steps_of_bazel OPTION.. TARGETS: how many steps a build from nothing takes, within some percent. Bazel itself gets to
# know them while it builds.
steps_of_bazel() {
  local expression=${*: -1}
  bazel aquery "${@:1:$#-1}" --noinclude_commandline "deps($expression)" 2>/dev/null |
    grep -cE '^  Mnemonic: (CppCompile|CppPrecompile|Genrule)$' || true
}

# progress_of_bazel WHAT [STEPS]: reads what Bazel says, and passes on what is no progress. STEPS is about how many there
# will be; without it, those that are done are told.
progress_of_bazel() {
  local line done total
  progress_begin "$1"
  while IFS= read -r line; do
    if [[ $line =~ ^\[[0-9,]+\ /\ [0-9,]+\]\ ([0-9,]+)\ /\ ([0-9,]+)\ tests ]]; then
      progress_at "${BASH_REMATCH[1]//,/}" "${BASH_REMATCH[2]//,/}" tests
    elif [[ $line =~ ^\[([0-9,]+)\ /\ ([0-9,]+)\] ]]; then
      done=${BASH_REMATCH[1]//,/} total=${BASH_REMATCH[2]//,/}
      if [ "${2:-0}" -gt 0 ]; then progress_at "$done" "$((total > $2 ? total : $2))"; else progress_at "$done" 0; fi
    else
      # Lines that Bazel writes over on a terminal.
      [[ $line =~ ^(Loading:|Analyzing:|$) ]] || { progress_end; printf '%s\n' "$line"; }
    fi
  done
  progress_end
}
# What makes Bazel say so without a terminal.
bazel_progress=(--show_progress --show_progress_rate_limit=2 --curses=no --color=no)

# progress_of_apt WHAT: reads apt's status lines (APT::Status-Fd). Downloading is taken for the first half.
progress_of_apt() {
  local kind percent
  progress_begin "$1"
  while IFS=: read -r kind _ percent _; do
    case $kind in
      dlstatus) progress_at "$((${percent%%.*} / 2))" 100 percent ;;
      pmstatus) progress_at "$((50 + ${percent%%.*} / 2))" 100 percent ;;
    esac
  done
  progress_end
}
