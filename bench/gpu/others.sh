# What belongs to others and is looked for on the machine: the driver, cuBLAS, PyTorch, Nsight
# Compute, compute-sanitizer. Sourced by run.sh.
# shellcheck shell=bash disable=SC2154

# first_file GLOB ...: the first that there is. Later names win among those of one pattern, so that
# newer versions come first.
first_file() {
  local pattern file found
  for pattern in "$@"; do
    found=''
    # shellcheck disable=SC2086
    for file in $pattern; do [ -e "$file" ] && found=$file; done
    [ -n "$found" ] && { echo "$found"; return; }
  done
  return 1
}

# Some containers have the driver in a folder of its own that the loader does not know.
find_driver() {
  local name=${UNISONO_CUDA_LIBRARY:-libcuda.so.1} folder
  case $name in
    */*) [ -e "$name" ] && echo "$name"; return ;;
  esac
  local known
  known=$( (ldconfig -p || /sbin/ldconfig -p) 2> /dev/null |
    awk -v name="$name" '$1 == name { print $NF; exit }')
  local folders=${LD_LIBRARY_PATH:-}
  for folder in ${folders//:/ }; do
    [ -e "$folder/$name" ] && { echo "$folder/$name"; return; }
  done
  first_file "${known:-/nowhere}" "/usr/local/nvidia/lib64/$name" "/usr/lib/wsl/lib/$name" \
    "/usr/lib/x86_64-linux-gnu/$name" "/usr/lib64/$name" "/usr/lib/$name"
}
# A driver of the user's choice may need none.
has_device_file() {
  [ -n "${UNISONO_CUDA_LIBRARY:-}" ] || first_file '/dev/nvidia[0-9]*' /dev/dxg > /dev/null
}

# find_tool NAME GLOB ...: on the path, or where the pattern says.
find_tool() {
  local name=$1
  shift
  command -v "$name" || first_file "$@"
}
find_sanitizer() {
  find_tool "${COMPUTE_SANITIZER:-compute-sanitizer}" '/usr/local/cuda*/bin/compute-sanitizer' \
    '/usr/local/cuda*/compute-sanitizer/compute-sanitizer' \
    '/opt/nvidia/*/compute-sanitizer/compute-sanitizer'
}
find_ncu() {
  find_tool "${NCU:-ncu}" '/usr/local/cuda*/bin/ncu' '/opt/nvidia/nsight-compute/*/ncu' \
    '/usr/local/cuda*/nsight-compute*/ncu'
}

# Folders that Python packages are in.
python_packages() {
  local folder
  command -v python3 > /dev/null &&
    python3 -c 'import sys; print("\n".join(p for p in sys.path if p.endswith("-packages")))'
  for folder in ${VIRTUAL_ENV:+"$VIRTUAL_ENV"/lib/python3*/site-packages} \
    /opt/*/.venv/lib/python3*/site-packages /opt/*/lib/python3*/site-packages \
    /usr/local/lib/python3*/*-packages /usr/lib/python3*/*-packages \
    "${HOME:-/root}"/.local/lib/python3*/site-packages; do
    [ -d "$folder" ] && echo "$folder"
  done
}

# Every folder with a cuBLAS, as a path for the loader: the library takes the newest that the driver
# can serve. Wheels have theirs in nvidia/*/lib.
cublas_path() {
  local folder path=''
  for folder in /usr/local/cuda*/lib64 /usr/local/cuda*/targets/*/lib /usr/lib/x86_64-linux-gnu \
    $(python_packages | while read -r packages; do echo "$packages"/nvidia/*/lib; done); do
    first_file "$folder/libcublas.so.1[123]" > /dev/null || continue
    case :$path: in *:$folder:*) ;; *) path=$path${path:+:}$folder ;; esac
  done
  echo "$path"
}

# Whether there is one, as far as can be told without loading it.
has_cublas() {
  [ -n "${UNISONO_CUBLAS_LIBRARY:-}$(cublas_path)" ] ||
    { ldconfig -p || /sbin/ldconfig -p; } 2> /dev/null | grep -q 'libcublas\.so\.1[123]'
}
# What the loader is to look through: cuBLAS loads the driver by its name.
path_with_cublas() {
  local found
  found=$(cublas_path)
  echo "${LD_LIBRARY_PATH:+$LD_LIBRARY_PATH:}${found:+$found:}$(dirname "$driver")"
}

# A Python that has PyTorch.
find_torch_python() {
  local python
  for python in python3 ${VIRTUAL_ENV:+"$VIRTUAL_ENV/bin/python3"} /opt/*/.venv/bin/python3 \
    /opt/*/bin/python3 /usr/local/bin/python3 /usr/bin/python3; do
    command -v "$python" > /dev/null || continue
    timeout 60 "$python" -c 'import torch' 2> /dev/null && { command -v "$python"; return; }
  done
  return 1
}
