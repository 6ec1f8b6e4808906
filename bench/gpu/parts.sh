# Parts of the run, one after the other: each has its own time limit, says what it came to, and the
# next one goes on. Sourced by run.sh.
# shellcheck shell=bash disable=SC2030,SC2031,SC2154

say() { echo "$*" >&2; }

# run_part NAME LIMIT: runs part_NAME with all its output in NAME.log, and adds a line to parts.tsv:
# name, outcome, seconds, note. Status 77 of a part: it cannot run here; 75: it had too little time.
run_part() {
  local name=$1 limit=$2 status start note outcome
  [ "$limit" -le "$(left)" ] || limit=$(left)
  start=$(date +%s)
  if [ "$limit" -lt 2 ]; then
    printf '%s\tno time\t0\tit had no turn\n' "$name" >> "$raw/parts.tsv"
    return
  fi
  say "$name (at most $limit s) ..."
  # Process groups of their own, so that a limit ends all of a part.
  set -m
  (deadline=$((start + limit)); "part_$name") > "$raw/$name.log" 2>&1 3> "$scratch/note" &
  job=$!
  (sleep $((limit + 5)); kill -TERM -- "-$job"; sleep 5; kill -KILL -- "-$job") > /dev/null 2>&1 &
  guard=$!
  set +m
  wait "$job"
  status=$?
  # At once: behind its fork it has the traps of this shell for a moment.
  kill -KILL -- "-$guard" 2> /dev/null
  wait "$guard" 2> /dev/null
  # What its programs have started, or has ignored the first signal, runs beside no other part.
  kill -KILL -- "-$job" 2> /dev/null
  job=''
  note=$(tr '\n\t' '  ' < "$scratch/note")
  case $status in
    0) outcome=pass ;;
    75) outcome='no time' ;;
    77) outcome=missing ;;
    *) outcome=FAIL ;;
  esac
  [ "$status" -le 128 ] || note="stopped after $limit s; $note"
  printf '%s\t%s\t%s\t%s\n' "$name" "$outcome" "$(($(date +%s) - start))" "$note" \
    >> "$raw/parts.tsv"
  # A run that is killed leaves what it has.
  keep_raw_output
}

# Of the part that runs: what its attempts came to.
tried=0 failed='' untried='' left_out=''

# attempt NAME LIMIT COMMAND ...: one program, which may not take all of the part's time. One that
# reaches its own limit has failed; one that the part's end cuts short, or that says so by status 75,
# has not. LIMIT_DIVISOR is the tests' own, who do not wait so long.
attempt() {
  local name=$1 limit=$(($2 / ${LIMIT_DIVISOR:-1})) rest=$((deadline - $(date +%s))) status cut=''
  shift 2
  if [ "$rest" -lt 2 ]; then
    untried="$untried $name"
    return 75
  fi
  [ "$limit" -le "$rest" ] || { limit=$rest; cut=yes; }
  echo "+ $*" >&2
  # In the part's process group, which ends with the part.
  timeout --foreground -k 3 "$limit" "$@"
  status=$?
  [ -z "$cut" ] || case $status in 124|137) status=75 ;; esac
  if [ $status = 75 ]; then
    untried="$untried $name(cut)"
    return 75
  fi
  tried=$((tried + 1))
  case $status in
    0) ;;
    124|137)
      # A tool that slows programs down by as much as it likes shows nothing by its limit.
      if [ -n "${is_slow:-}" ]; then
        untried="$untried $name(stopped after $limit s)"
        return 75
      fi
      failed="$failed $name(stopped after $limit s)"
      ;;
    *) failed="$failed $name:$status" ;;
  esac
  return $status
}

# conclude WORDS: the part's note and its status, from its attempts.
conclude() {
  local told="$tried $1${failed:+; failed:$failed}${untried:+; no time for:$untried}"
  echo "$told${left_out:+; left out:$left_out}" >&3
  [ -z "$failed" ] || return 1
  [ -z "$untried" ] || return 75
  [ -z "$left_out" ] || return 77
}

# measure FILE NAME LIMIT ARGUMENTS ...: rows of `unisono perf` on device memory. Those of processes
# are left out once their waits have failed or one has hung: each would take all of its limit.
measure() {
  local file=$raw/$1 name=$2 limit=$3 start status
  shift 3
  case " $* " in
    *" --as processes "*)
      if [ -e "$raw/processes_hang" ]; then
        left_out="$left_out $name(processes hang: $(cat "$raw/processes_hang"))"
        return 77
      fi
      ;;
  esac
  start=$(date +%s)
  # Its own end comes first, and says what it waited for.
  attempt "$name" "$limit" "$unisono" perf "$@" --memory cuda --timeout $((limit - 5)) --json \
    >> "$file"
  status=$?
  case " $* " in
    *" --as processes "*)
      [ $status = 0 ] || [ $status = 75 ] ||
        [ $(($(date +%s) - start)) -lt $(((limit - 5) / ${LIMIT_DIVISOR:-1})) ] ||
        echo "$name" > "$raw/processes_hang"
      ;;
  esac
  return $status
}

# refused PART WORDS NOTE: whether the part's programs said that this machine does not let them.
refused() {
  grep -q "$2" "$raw/$1.log" || return 1
  echo "$3" >&3
}

# run_suites NAME LIMIT [FILTER]: each suite of a GoogleTest program in a process of its own. Ranks
# are forked before a real driver is initialised, and what breaks one's context leaves the others
# alone.
run_suites() {
  local name=$1 limit=$2 program suites suite
  program=$(find_program "$name")
  suites=$(timeout 20 "$program" --gtest_list_tests --gtest_filter="${3:-*}" | grep -oE '^[^ ]+\.')
  [ -n "$suites" ] || failed="$failed $name:no tests"
  for suite in $suites; do
    attempt "$name/${suite%.}" "$limit" "$program" --gtest_filter="$suite*" --gtest_color=no
  done
}

# count_tests LOG: "N tests passed, M skipped (REASON K, ...)" of what GoogleTest printed there.
count_tests() {
  awk '
    /^\[       OK \]/ { ok++ }
    /: Skipped$/ { waits = 1; next }
    waits && NF { why[$0]++; waits = 0 }
    /^\[  SKIPPED \] .*\(/ { skipped++ }
    END {
      printf "%d tests passed, %d skipped", ok, skipped
      for (reason in why) text = text (text == "" ? "" : ", ") why[reason] " " reason
      if (text != "") printf " (%s)", text
    }' "$1"
}

# One archive with all that the programs printed.
keep_raw_output() {
  tar -czf "$scratch/raw.tar.gz" -C "$scratch" raw
  # 1: a file has grown meanwhile, and is there as far as it was.
  [ $? -le 1 ] && cp "$scratch/raw.tar.gz" "$out/raw-$call.tar.gz"
}

# The table needs python3; without it the parts' outcomes are what there is.
write_table() {
  if command -v python3 > /dev/null; then
    python3 "$here/table.py" "$raw"
  else
    summarize
  fi
}

# What the table says of the run itself, wherever it is made.
describe_run() {
  local unjudged='' commit
  [ -z "$rehearsal" ] || unjudged='a rehearsal'
  [ "$call" = 1 ] || unjudged='the first call does'
  case " ${only:-goals} " in *" goals "*) ;; *) unjudged='no part measured them' ;; esac
  commit=$(cat "$programs/commit" 2> /dev/null || commit_here)
  printf '{"call":%s,"rehearsal":%s,"unjudged":"%s","date":"%s","host":"%s","commit":"%s"}\n' \
    "$call" "$([ -n "$rehearsal" ] && echo true || echo false)" "$unjudged" \
    "$(date '+%Y-%m-%d %H:%M %z')" "$HOSTNAME" "$commit" > "$raw/run.json"
  # The parts' own questions come instead, where they are asked.
  timeout 40 "$probe" attributes > "$raw/probe.jsonl" 2> /dev/null
}

summarize() {
  local outcome
  [ -z "$rehearsal" ] || echo "REHEARSAL on a double of the driver: all times are meaningless"
  awk -F'\t' '{ printf "%-12s %-7s %4s s  %s\n", $1, $2, $3,
    length($4) <= 300 ? $4 : substr($4, 1, 300) " ... see parts.tsv" }' "$raw/parts.tsv"
  echo "no python3 here: bench/gpu/table.py raw-$call.tar.gz judges the goals elsewhere"
  for outcome in FAIL 'no time' missing; do
    # Its names, in one line.
    awk -F'\t' -v outcome="$outcome" '
      BEGIN { told["FAIL"] = "parts failed"; told["no time"] = "had no time"
        told["missing"] = "could not run" }
      $2 == outcome { names = names (names == "" ? "" : ", ") $1 }
      END { printf "%s: %s; ", told[outcome], names == "" ? "none" : names }' "$raw/parts.tsv"
  done
  echo "goals: not judged (no python3)"
  ! grep -q "$(printf '\tFAIL\t')" "$raw/parts.tsv" || return 1
  ! grep -q "$(printf '\tno time\t')" "$raw/parts.tsv" || return 75
}
