# The programs of the run: building them, one archive with all that they need, and what is in a
# folder of either. Sourced by run.sh.
# shellcheck shell=bash disable=SC2154

build_programs() {
  local log=$build/build.log limit=7200
  mkdir -p "$build" || return 1
  [ -n "$pack" ] || limit=$(left)
  say "building (log: $log) ..."
  export -f configure_and_build
  if ! root=$root build=$build timeout "$limit" bash -c configure_and_build > "$log" 2>&1; then
    tail -n 15 "$log"
    [ -n "$pack" ] || cp "$log" "$out/"
    echo "run.sh: the build failed or took too long; --pack builds on another machine"
    return 1
  fi
}
configure_and_build() {
  local generator=() tests train=OFF
  # The trainer needs Eigen and zlib; all else goes without.
  [ -d /usr/include/eigen3 ] && [ -f /usr/include/zlib.h ] && train=ON
  command -v ninja > /dev/null && generator=(-G Ninja)
  cmake -S "$root" -B "$build" "${generator[@]}" -DCMAKE_BUILD_TYPE=Release -DUNISONO_WITH_CUDA=ON \
    -DUNISONO_CUDA_ARCHITECTURES="${ARCHITECTURES:-90}" -DUNISONO_BUILD_TRAIN=$train \
    -DUNISONO_BUILD_BENCH=OFF || return 1
  tests=$(cmake --build "$build" --target help | grep -oE '(train_)?cuda_[a-z_]+_test' | sort -u)
  # shellcheck disable=SC2086
  cmake --build "$build" -j "$(nproc)" --target unisono_cli gpu_probe gpu_graph $tests
}

find_program() { # name
  local place
  for place in "$programs" "$programs/tools" "$programs/bench/gpu" "$programs/tests/cuda" \
    "$programs/tests/train/cuda"; do
    [ -f "$place/$1" ] && [ -x "$place/$1" ] && { echo "$place/$1"; return; }
  done
}
# Test programs that ask something of a driver; those of the double itself and of plain arithmetic
# on the host have nothing to say of a GPU.
list_tests() {
  local file
  for file in "$programs"/{,train_}cuda_*_test \
    "$programs"/tests/{,train/}cuda/{,train_}cuda_*_test; do
    case $file in
      *cuda_fake_driver_test|*cuda_kernel_bodies_test) ;;
      *) [ -x "$file" ] && echo "$file" ;;
    esac
  done
}

# Of the programs that are named: the libraries that they load, but for those of glibc, which belong
# to the machine as its loader does.
libraries_of() {
  ldd "$@" | awk '$3 ~ /^\// { print $3 }' | sort -u |
    grep -vE '/(libc|libm|libdl|librt|libpthread|libresolv|libutil|libmvec|ld-linux[^/]*)\.so'
}

commit_here() { git -C "$root" describe --always --dirty 2> /dev/null || echo 'not known'; }

# What the kernels of a build tree need of the driver: see docs/gpu.md.
kernels_line() {
  local setting header version driver='525.60'
  setting() { sed -n "s/^$1:[A-Z]*=//p" "$programs/CMakeCache.txt"; }
  header=$(setting UNISONO_CUDA_INCLUDE_DIR)/cuda.h
  version=$(awk '$2 == "CUDA_VERSION" { print $3; exit }' "$header")
  [ -n "$version" ] || return 0
  [ "$version" -lt 13000 ] || driver=580
  echo "kernels: sm_$(setting UNISONO_CUDA_ARCHITECTURES | sed 's/;/, sm_/g'), toolkit" \
    "$((version / 1000)).$((version % 1000 / 10)): driver $driver or newer; check nvidia-smi first"
}

# first_items COUNT FILE: the first so many of a file of IDX images or labels, compressed as it is.
first_items() {
  local count=$1 file=$2 header=8 item=1
  case $file in *images*) header=16 item=784 ;; esac
  {
    gzip -dc "$file" | head -c 4
    # shellcheck disable=SC2059
    printf "$(printf '\\x%02x\\x%02x\\x%02x\\x%02x' 0 0 $((count / 256)) $((count % 256)))"
    gzip -dc "$file" | tail -c +9 | head -c $((header - 8 + count * item))
  } | gzip
}
# So many images that an epoch is longer than what the trainer is asked for.
pack_data() { # folder
  local data=${DATA:-/usr/share/datasets/fashion-mnist} kind
  [ -d "$data" ] || { say "no images in $data: the trainer is packed without"; return; }
  mkdir "$1"
  for kind in images-idx3 labels-idx1; do
    first_items 12800 "$data/train-$kind-ubyte.gz" > "$1/train-$kind-ubyte.gz"
    first_items 2000 "$data/t10k-$kind-ubyte.gz" > "$1/t10k-$kind-ubyte.gz"
  done
}

# The archive is a plain tar of xz, the library of it, and what xz has compressed: the programs hold
# much of the same code, which only a compressor with a large window finds, and a bare machine may
# have none.
pack_programs() { # archive
  local archive=$1 folder=$scratch/pack file files
  command -v xz > /dev/null || { echo "run.sh: --pack needs xz"; return 1; }
  # PACK_TESTS: not all of them, for the tests of this.
  files=$(find_program unisono; find_program gpu_probe; find_program gpu_graph
    list_tests | grep -E "/(${PACK_TESTS:-.*})\$")
  mkdir -p "$folder/programs/lib" "$folder/programs/images" "$(dirname "$archive")" || return 1
  for file in $files; do
    strip -o "$folder/programs/${file##*/}" "$file" || return 1
  done
  # shellcheck disable=SC2086
  for file in $(libraries_of $files); do
    strip -o "$folder/programs/lib/${file##*/}" "$file" || return 1
  done
  # What ptxas said of the kernels: tests read it.
  cp "$programs"/src/cuda/kernels/*.ptxas "$programs"/src/train/cuda/*.ptxas \
    "$folder/programs/images" 2> /dev/null
  pack_data "$folder/programs/data"
  cp -L "$(command -v xz)" "$folder/xz" || return 1
  ldd "$folder/xz" | awk '/liblzma/ { print $3 }' | xargs -I '{}' cp -L '{}' "$folder/"
  for file in "$folder"/programs/{,lib/}*; do
    [ -f "$file" ] && echo "$(glibc_of "$file") ${file#"$folder/"}"
  done > "$folder/glibc"
  commit_here > "$folder/programs/commit"
  kernels_line | tee "$folder/kernels" > "$folder/programs/kernels"
  uname -m > "$folder/machine"
  tar -C "$folder" -cf - programs |
    xz -T 1 --lzma2=preset=1,dict=128MiB > "$folder/programs.tar.xz" || return 1
  rm -r "$folder/programs"
  tar -C "$folder" -cf "$archive" . || return 1
  local bytes limit=${PACK_BYTES_MAX:-60000000}
  bytes=$(stat -c %s "$archive")
  if [ "$bytes" -gt "$limit" ]; then
    rm -f "$archive"
    echo "run.sh: the archive is $bytes bytes and at most $limit are carried to a machine: leave" \
      "programs out with PACK_TESTS, or raise PACK_BYTES_MAX"
    return 1
  fi
  echo "packed: $(wc -w <<< "$files") programs in $(($(stat -c %s "$archive") / 1000000)) MB," \
    "$archive; they need glibc $(awk '$2 !~ /\/lib\// { print $1 }' "$folder/glibc" |
      sort -V | tail -n 1), $(sort -V "$folder/glibc" | tail -n 1 | awk '{ print $2, $1 }')"
  cat "$folder/kernels"
}

# The newest version of glibc's symbols in a file.
glibc_of() {
  objdump -T "$1" | grep -oE 'GLIBC_[0-9.]+' | sort -uV | tail -n 1 | sed 's/GLIBC_//'
}

# The C library's version here: "2.36".
glibc_here() {
  getconf GNU_LIBC_VERSION 2> /dev/null | grep -oE '[0-9.]+' ||
    ldd --version 2> /dev/null | head -n 1 | grep -oE '[0-9.]+$'
}

# older A B: whether version A comes before version B.
older() { [ "$1" != "$2" ] && [ "$(printf '%s\n' "$1" "$2" | sort -V | head -n 1)" = "$1" ]; }

# A library that is too new for the C library here is left to the system, which has one of its own
# or says that it has not; programs that are too new cannot run.
check_glibc() { # folder
  local have need file
  have=$(glibc_here)
  [ -n "$have" ] || { say "the version of glibc here is not known"; return; }
  while read -r need file; do
    [ -n "$file" ] || continue
    older "$have" "$need" || continue
    case $file in
      programs/lib/*)
        say "${file#programs/lib/} of the archive needs glibc $need, and here is $have:" \
          "the system's own is taken"
        rm -f "$1/$file"
        ;;
      *)
        echo "run.sh: ${file#programs/} needs glibc $need, and here is $have: pack on a system" \
          "that is as old as this one"
        return 1
        ;;
    esac
  done < "$1/glibc"
}

unpack_programs() { # archive folder
  local outer=$scratch/unpacked
  mkdir "$outer" || return 1
  if ! tar -C "$outer" -xf "$1" || [ ! -f "$outer/programs.tar.xz" ]; then
    echo "run.sh: $1 is no archive of --pack"
    return 1
  fi
  [ "$(uname -m)" = "$(cat "$outer/machine")" ] ||
    { echo "run.sh: $1 is for $(cat "$outer/machine"), and this is $(uname -m)"; return 1; }
  LD_LIBRARY_PATH=$outer "$outer/xz" -dc "$outer/programs.tar.xz" | tar -C "$outer" -xf - &&
    check_glibc "$outer" && mv "$outer/programs" "$2"
}
