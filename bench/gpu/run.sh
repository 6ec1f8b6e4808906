#!/usr/bin/env bash
# Everything about GPU buffers that only a GPU can show, in two calls of less than ten minutes each.
#
#   bench/gpu/run.sh [options]
#
#   --call 1|2         1 (default): what matters most; 2: the rest. README.md lists their parts
#   --out FOLDER       where the table and the raw output go (default: $OUT, else
#                      build/gpu-results); those of an earlier run stay as *.old, *.old.~1~ ...
#   --build FOLDER     where programs are built (default: build/gpu of this repository)
#   --programs FOLDER  build nothing: the programs of a build tree
#   --pack ARCHIVE     only build, or take --programs, and make one archive for a machine that has a
#                      GPU and nothing of what building and running take
#   --from ARCHIVE     build nothing: the programs of an archive of --pack
#   --only "PART ..."  these parts alone, of either call; the files are those of --call
#   --seconds N        end after about this time (default 570)
#   --rehearse         the whole script with the driver DRIVER=file, a double of the tests', and tiny
#                      sizes: what is then measured means nothing
#
# Without a GPU it says "no GPU here: ..." and ends with status 77, before anything is built. A part
# that fails or cannot run says so, and the rest goes on. The last lines are a short table. Status
# 1: a part failed, an element was wrong or a goal was missed; 75: none of that, and parts had no time;
# 2: it cannot run so. See README.md for the rest.
set -u
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
call=1 build=$root/build/gpu out=${OUT:-$root/build/gpu-results} only='' programs='' pack='' from=''
seconds=570 rehearsal=''
refuse() { echo "run.sh: $*; see --help" >&2; exit 2; }
while [ $# -gt 0 ]; do
  case $1 in
    --call|--out|--build|--programs|--pack|--from|--only|--seconds)
      [ -n "${2:-}" ] || refuse "$1 needs a value" ;;
  esac
  case $1 in
    --call) call=$2; shift ;;
    --out) out=$2; shift ;;
    --build) build=$2; shift ;;
    --programs) programs=$2; shift ;;
    --pack) pack=$2; shift ;;
    --from) from=$2; shift ;;
    --only) only=$2; shift ;;
    --seconds) seconds=$2; shift ;;
    --rehearse) rehearsal=yes ;;
    -h|--help) sed -n '2,24s/^# \{0,1\}//p' "$0"; exit 0 ;;
    *) refuse "unknown argument '$1'" ;;
  esac
  shift
done
# shellcheck source-path=SCRIPTDIR source=programs.sh
. "$here/programs.sh"
# shellcheck source-path=SCRIPTDIR source=others.sh
. "$here/others.sh"
# shellcheck source-path=SCRIPTDIR source=parts.sh
. "$here/parts.sh"
# shellcheck source-path=SCRIPTDIR source=first_call.sh
. "$here/first_call.sh"
# shellcheck source-path=SCRIPTDIR source=second_call.sh
. "$here/second_call.sh"
case $call in 1|2) ;; *) refuse "--call is 1 or 2" ;; esac
case $seconds in *[!0-9]*) refuse "--seconds is a number, not '$seconds'" ;; esac
for part in $only; do
  declare -F "part_$part" > /dev/null || refuse "there is no part '$part'"
done
[ -z "$from" ] || [ -z "$programs$pack" ] || refuse "--from goes without --programs and --pack"
[ -z "$from" ] || [ -f "$from" ] || refuse "there is no archive $from"
[ -z "$programs" ] || [ -d "$programs" ] || refuse "there is no folder $programs"
[ -z "$rehearsal" ] || [ -f "${DRIVER:-}" ] ||
  refuse "--rehearse needs DRIVER=file, the driver of the tests, and '${DRIVER:-}' is none"
[ -n "$from$programs" ] || [ -f "$root/CMakeLists.txt" ] ||
  refuse "no sources here: --from ARCHIVE, or --programs FOLDER"
began=$(date +%s)
left() { echo $((began + seconds - $(date +%s))); }

# All that is written on the way is in a folder of its own, and goes away with it.
scratch=$(mktemp -d "${TMPDIR:-/tmp}/unisono-gpu.XXXXXX") || exit 2
raw=$scratch/raw
mkdir "$raw"
# Of the part that runs: its process group, and that of what ends it at its limit.
job='' guard=''
made_out='' keep_scratch=''
# shellcheck disable=SC2317
leave() {
  # A process that is ended just behind its fork has this trap still.
  [ "$BASHPID" = $$ ] || return
  [ -z "$job" ] || kill -KILL -- "-$job" "-$guard" 2> /dev/null
  [ -n "$keep_scratch" ] || rm -rf "$scratch"
  [ -z "$made_out" ] || rmdir "$out" 2> /dev/null
}
trap leave EXIT
trap 'exit 143' TERM INT HUP

# --- is there a GPU? -----------------------------------------------------------------------------
no_gpu() { echo "no GPU here: $*"; exit 77; }
if [ -n "$rehearsal" ]; then
  driver=$DRIVER
  export FAKE_CUDA_DELAY_US=0 FAKE_CUDA_MEMORY=${FAKE_CUDA_MEMORY:-512M}
elif [ -z "$pack" ]; then
  driver=$(find_driver) || no_gpu "no driver (${UNISONO_CUDA_LIBRARY:-libcuda.so.1} is nowhere)"
  has_device_file || no_gpu "there is a driver, $driver, and no device file such as /dev/nvidia0"
fi
[ -n "$pack" ] || export UNISONO_CUDA_LIBRARY=$driver

# Before anything takes time.
if [ -z "$pack" ]; then
  [ -d "$out" ] || made_out=yes
  if ! { mkdir -p "$out" && (: > "$out/writable") && rm "$out/writable"; }; then
    echo "run.sh: cannot write into $out"
    exit 2
  fi
  out=$(cd "$out" && pwd)
  command -v nvidia-smi > /dev/null && timeout 20 nvidia-smi > "$raw/nvidia-smi.txt" 2>&1
fi

# --- programs ------------------------------------------------------------------------------------
if [ -n "$from" ]; then
  unpack_programs "$from" "$scratch/programs" || exit 2
  programs=$scratch/programs
elif [ -z "$programs" ]; then
  build_programs || exit 1
  programs=$build
fi
programs=$(cd "$programs" && pwd) || exit 2
if [ -n "$pack" ]; then
  pack_programs "$pack"
  exit
fi
unisono=$(find_program unisono)
probe=$(find_program gpu_probe)
if [ -z "$unisono" ] || [ -z "$probe" ]; then
  echo "run.sh: there are no programs unisono and gpu_probe in $programs"
  exit 2
fi
counted=$(timeout 60 "$probe" devices 2>&1)
case $? in
  0) ;;
  3)
    echo "run.sh: nothing can run on this GPU: $counted"
    [ ! -f "$programs/kernels" ] || cat "$programs/kernels"
    [ ! -f "$raw/nvidia-smi.txt" ] || cp "$raw/nvidia-smi.txt" "$out/"
    exit 1
    ;;
  *) no_gpu "${counted:-the driver does not answer}" ;;
esac
for file in "table-$call.txt" "raw-$call.tar.gz"; do
  [ ! -e "$out/$file" ] || mv --backup=numbered "$out/$file" "$out/$file.old" || exit 2
done
describe_run

# --- parts ---------------------------------------------------------------------------------------
# Where nobody has a context the driver gives up what it has set up, and each program pays for it.
# The holder ends with this script.
"$probe" hold $$ > "$raw/hold.log" 2>&1 &
if [ -n "$only" ]; then
  for part in $only; do run_part "$part" "$(left)"; done
elif [ "$call" = 1 ]; then
  first_call
else
  second_call
fi
write_table > "$scratch/table.txt"
status=$?
cat "$scratch/table.txt"
if keep_raw_output && cp "$scratch/table.txt" "$out/table-$call.txt"; then
  say "$out/table-$call.txt is the table, $out/raw-$call.tar.gz the output of all programs"
else
  keep_scratch=yes
  say "run.sh: cannot write into $out: the output of all programs is in $scratch"
  [ $status = 1 ] || status=2
fi
exit $status
