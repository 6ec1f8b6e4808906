"""The process group in Python alone: ctypes on the C API, for machines without a compiler
(TORCH_UNISONO_PURE_PYTHON=1), and a second implementation to compare the adapter with.

CPU tensors only, and slower than the adapter: a call takes about 0.1 ms.
"""

import collections
import ctypes
import datetime
import functools
import math
import os
import threading
import time
import weakref

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import Work

from unisono_torch import _build

_COLLECTIVES = [
    "all_reduce", "reduce", "broadcast", "all_gather", "all_gather_v", "reduce_scatter",
    "reduce_scatter_v", "gather", "gather_v", "scatter", "scatter_v", "all_to_all", "all_to_all_v",
    "barrier", "scan", "exscan", "send", "receive",
]  # fmt: skip
_BYTES = 4
_TYPES = {
    torch.int8: 0, torch.int16: 1, torch.int32: 2, torch.int64: 3, torch.uint8: 4,
    torch.float16: 8, torch.bfloat16: 9, torch.float8_e4m3fn: 10, torch.float8_e5m2: 11,
    torch.float32: 12, torch.float64: 13, torch.bool: 14, torch.complex64: 15,
    torch.complex128: 16,
}  # fmt: skip
_OPERATORS = ["SUM", "PRODUCT", "MIN", "MAX", "AVG", None, "BAND", "BOR", "BXOR"]
_ANY_RANK = -1
_NO_ROOT = -2
_PAUSE_S = 0.002
_LONGEST = datetime.timedelta(days=365)


class _Struct(ctypes.Structure):
    def __init__(self, **members):
        super().__init__(size=ctypes.sizeof(self), **members)


class _InitOptions(_Struct):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("rendezvous", ctypes.c_char_p),
        ("job_key", ctypes.c_char_p),
        ("transport", ctypes.c_char_p),
        ("timeout_ms", ctypes.c_int64),
        ("rank", ctypes.c_int32),
        ("world_size", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("reserved", ctypes.c_int32),
        ("order", ctypes.c_int),
        ("reserved_at_end", ctypes.c_int32),
    ]


class _CallOptions(_Struct):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("timeout_ms", ctypes.c_int64),
        ("algorithm", ctypes.c_char_p),
        ("order", ctypes.c_int),
        ("has_stream", ctypes.c_int32),
        ("stream", ctypes.c_void_p),
        ("factor", ctypes.c_double),
        ("user_op", ctypes.c_void_p),
    ]


class _Call(_Struct):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("collective", ctypes.c_int),
        ("input", ctypes.c_void_p),
        ("output", ctypes.c_void_p),
        ("count", ctypes.c_size_t),
        ("type", ctypes.c_int),
        ("op", ctypes.c_int),
        ("root", ctypes.c_int32),
        ("peer", ctypes.c_int32),
        ("tag", ctypes.c_uint32),
        ("in_counts", ctypes.POINTER(ctypes.c_size_t)),
        ("in_displacements", ctypes.c_void_p),
        ("out_counts", ctypes.POINTER(ctypes.c_size_t)),
        ("out_displacements", ctypes.c_void_p),
        ("options", ctypes.POINTER(_CallOptions)),
    ]


class _Received(_Struct):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("count", ctypes.c_size_t),
        ("source", ctypes.c_int32),
        ("tag", ctypes.c_uint32),
    ]


_SET = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_size_t
)
_GET = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int64, ctypes.c_void_p
)


class _Store(_Struct):
    _fields_ = [
        ("size", ctypes.c_size_t),
        ("context", ctypes.c_void_p),
        ("set", _SET),
        ("get", _GET),
    ]


@functools.cache
def _library():
    _, folder = _build.find_unisono()
    library = ctypes.CDLL(os.fspath(folder / "libunisono.so"))
    for name in ("unisono_last_error", "unisono_code_name"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


def _check(code, operation):
    if code == 0:
        return
    library = _library()
    rank = library.unisono_last_error_rank()
    fault = "no rank at fault" if rank < 0 else f"rank at fault: {rank}"
    name = library.unisono_code_name(library.unisono_last_error_code()).decode()
    text = library.unisono_last_error().decode()
    raise dist.DistBackendError(f"unisono: {operation}: {name} ({fault}): {text}")


def _milliseconds(timeout):
    # Rounded up: 0 would be the default.
    return math.ceil(min(timeout, _LONGEST).total_seconds() * 1000)


def _guarded(function, failures):
    """`function` for the C API, through which no exception can go: the failures keep it."""

    def call(*arguments):
        try:
            function(*arguments)
            return 0
        except BaseException as failure:  # noqa: BLE001  it is raised when the call is over
            failures.append(failure)
            return 1

    return call


def _join(store, rank, size, timeout):
    """The communicator of the ranks that meet in torch's store."""
    library = _library()
    failures = []

    def put(_context, key, data, count):
        store.set(key.decode(), ctypes.string_at(data, count))

    def get(_context, key, timeout_ms, value):
        deadline = time.monotonic() + timeout_ms / 1000
        while not store.check([key.decode()]):
            if time.monotonic() >= deadline:
                return
            time.sleep(_PAUSE_S)
        found = store.get(key.decode())
        library.unisono_store_return(ctypes.c_void_p(value), found, ctypes.c_size_t(len(found)))

    callbacks = _Store(set=_SET(_guarded(put, failures)), get=_GET(_guarded(get, failures)))
    options = _InitOptions(timeout_ms=_milliseconds(timeout), rank=-1, world_size=-1, device=-1)
    comm = ctypes.c_void_p()
    code = library.unisono_join(
        ctypes.byref(callbacks), b"unisono", rank, size, ctypes.byref(options), ctypes.byref(comm)
    )
    if code != 0 and failures:
        raise failures[-1]
    _check(code, "init_process_group")
    return comm


def _destroy(comm, works, process):
    """What follows a group's end, but in children that were forked: it is all the parent's."""
    if os.getpid() == process:
        # This ends the works too.
        _library().unisono_comm_destroy(comm)
        _end_finished(works)


def _end_finished(works):
    for work in tuple(works):
        work.is_completed()


def _is_finished(request):
    finished = ctypes.c_int32()
    _check(_library().unisono_request_test(request, ctypes.byref(finished)), "is_completed")
    return finished.value != 0


def _finishes_by(request, deadline):
    left = max(0, math.ceil(1000 * (deadline - time.monotonic())))
    finished = ctypes.c_int32()
    # A failure is an outcome, which unisono_request_wait() tells.
    _library().unisono_request_wait_for(request, ctypes.c_int64(left), ctypes.byref(finished))
    return finished.value != 0


def _source_of(request, room):
    """Who sent what a tensor of `room` bytes has got: it keeps old elements behind a shorter one."""
    received = _Received()
    _check(_library().unisono_request_received(request, ctypes.byref(received)), "recv")
    if received.count != room:
        raise dist.DistBackendError(
            f"unisono: recv: rank {received.source} sent {received.count} bytes, and the tensor has "
            f"{room}"
        )
    return received.source


def _in_elements(model, members):
    """What is counted in bytes in elements of `model`, so that ranks whose types differ are told."""
    if "type" in members or model is None or model.dtype not in _TYPES:
        return members
    size = model.element_size()
    members = {**members, "type": _TYPES[model.dtype]}
    if "count" in members:
        members["count"] //= size
    for name in ("in_counts", "out_counts"):
        if name in members:
            members[name] = [count // size for count in members[name]]
    return members


class _Works(set):
    """A group's that have not ended, and the latest that nobody has waited for: where C++ alone has
    a work, as DDP does, older versions of torch keep it without what it is in Python, and its
    wait() would be the base class's, which never ends."""

    def __init__(self):
        super().__init__()
        self.given = collections.deque(maxlen=64)

    def note_waited_for(self, work):
        try:
            self.given.remove(work)
        except ValueError:
            pass  # a second time, or long after


class _PythonWork(Work):
    """A request. What torch asks for is known once it has ended, so that everything waits."""

    def __init__(self, works, operation, requests, lent, outputs, copies):
        super().__init__()
        # The group's that have not ended. The group itself may go before them.
        self._works = works
        self._operation = operation
        self._requests = requests
        self._lent = lent  # everything that the library uses until the end
        self._outputs = outputs
        self._copies = copies  # (from, to)
        self._lock = threading.Lock()
        self._is_over = False
        self._failure = None
        self._source = _ANY_RANK

    def _end(self):
        with self._lock:
            if not self._is_over:
                self._conclude()
        self._works.discard(self)

    def _is_over_by(self, deadline):
        # Whoever has the lock waits for the end.
        if not self._lock.acquire(timeout=max(0, deadline - time.monotonic())):
            return False
        try:
            return self._is_over or all(_finishes_by(each, deadline) for each in self._requests)
        finally:
            self._lock.release()

    # Under the lock.
    def _conclude(self):
        try:
            for request in self._requests:
                _check(_library().unisono_request_wait(request), self._operation)
            with torch.no_grad():
                for source, target in self._copies:
                    target.copy_(source.view(target.shape))
            if self._operation == "recv":
                self._source = _source_of(self._requests[0], self._outputs[0].nbytes)
        except Exception as failure:  # noqa: BLE001  it is given to whoever waits
            self._failure = failure
        for request in self._requests:
            _library().unisono_request_free(request)
        self._requests = []
        self._lent = self._copies = None
        self._is_over = True

    def wait(self, timeout=None):
        if timeout is not None and timeout > datetime.timedelta(0):
            limit_ms = _milliseconds(timeout)
            if not self._is_over_by(time.monotonic() + limit_ms / 1000):
                raise dist.DistBackendError(
                    f"unisono: {self._operation}: timed out: wait() gave it {limit_ms} ms"
                )
        self._end()
        self._works.note_waited_for(self)
        _end_finished(self._works)
        if self._failure is not None:
            raise self._failure
        return True

    def is_completed(self):
        # Whoever has the lock waits for the end.
        if self._lock.acquire(blocking=False):
            try:
                if not self._is_over and all(map(_is_finished, self._requests)):
                    self._conclude()
            finally:
                self._lock.release()
        if self._is_over:
            self._works.discard(self)
        return self._is_over

    def is_success(self):
        return self._is_over and self._failure is None

    def synchronize(self):
        self.wait()

    def result(self):
        return self._outputs

    def source_rank(self):
        return self._source

    def _source_rank(self):
        return self._source

    def get_future(self):
        future = torch.futures.Future()
        self._end()
        self._works.note_waited_for(self)
        if self._failure is not None:
            future.set_exception(self._failure)
        else:
            future.set_result(self._outputs)
        return future


class _Started:
    """A work in the making: its calls, and what they need. None starts before all were checked."""

    def __init__(self, group, operation, opts=None):
        self.group = group
        self.operation = operation
        timeout = getattr(opts, "timeout", None)
        if timeout is None or timeout <= datetime.timedelta(0):
            timeout = group.timeout
        self.options = _CallOptions(timeout_ms=_milliseconds(timeout), factor=1.0)
        self.calls = []
        self.lent = [self.options, self.calls]
        self.copies = []

    # Where a call reads or writes tensors: in their place, or else in copies.
    def read(self, tensor):
        _check_dense(tensor, self.operation)
        return self._keep(_plain(tensor))

    def write(self, tensor, reads_it_too=False):
        _check_dense(tensor, self.operation)
        tensor = tensor.detach()
        room = tensor
        if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
            room = _plain(tensor) if reads_it_too else (
                torch.empty(tensor.shape, dtype=tensor.dtype)
            )
            self.copies.append((room, tensor))
        return self._keep(room)

    def read_all(self, tensors):
        _check_alike(tensors, self.operation)
        return self._keep(torch.cat([_plain(tensor).view(-1) for tensor in tensors]))

    def write_all(self, tensors):
        _check_alike(tensors, self.operation)
        room = torch.empty(sum(tensor.numel() for tensor in tensors), dtype=tensors[0].dtype)
        parts = room.split([tensor.numel() for tensor in tensors])
        self.copies += zip(parts, [tensor.detach() for tensor in tensors])
        return self._keep(room)

    def _keep(self, tensor):
        self.lent.append(tensor)
        return tensor

    def add(self, collective, input=None, output=None, **members):
        """A call on what read() and write() have returned."""
        self._check_counts(input=members.get("in_counts"), output=members.get("out_counts"))
        if input is not None and output is not None:
            _check_alike([input, output], self.operation)
        self._check_sizes(collective, input, output, members)
        members = _in_elements(output if input is None else input, members)
        for name in ("in_counts", "out_counts"):
            if name in members:
                counts = members[name]
                members[name] = (ctypes.c_size_t * len(counts))(*counts)
        self.calls.append(_Call(
            collective=_COLLECTIVES.index(collective),
            input=None if input is None else input.data_ptr(),
            output=None if output is None else output.data_ptr(),
            options=ctypes.pointer(self.options),
            **{"type": _BYTES, "root": 0, "peer": _NO_ROOT, **members},
        ))  # fmt: skip

    def _check_counts(self, **counts_of):
        size = self.group.size()
        for name, counts in counts_of.items():
            if counts is None:
                continue
            if len(counts) != size:
                raise RuntimeError(
                    f"unisono: {self.operation}: the {name} has {len(counts)} parts for {size} "
                    "ranks"
                )
            if min(counts) < 0:
                raise RuntimeError(
                    f"unisono: {self.operation}: a part of the {name} has a negative size"
                )

    # The library has no sizes of buffers: it trusts the counts.
    def _check_sizes(self, collective, input, output, members):
        is_moved = members.get("type", _BYTES) == _BYTES
        needed = self._needed(collective, **members)
        for name, tensor, count in zip(("input", "output"), (input, output), needed):
            if tensor is None:
                continue
            if tensor.nbytes != count * (1 if is_moved else tensor.element_size()):
                elements = count // tensor.element_size() if is_moved else count
                raise RuntimeError(
                    f"unisono: {self.operation}: the {name} has {tensor.numel()} elements, and "
                    f"the call needs {elements}"
                )

    def _needed(self, collective, count=0, in_counts=None, out_counts=None, **_others):
        """Elements that the library reads and writes."""
        size, rank = self.group.size(), self.group.rank()
        sent, received = in_counts or [0] * size, out_counts or [0] * size
        return {
            "all_gather": (count, size * count),
            "all_gather_v": (received[rank], sum(received)),
            "reduce_scatter": (size * count, count),
            "reduce_scatter_v": (sum(sent), sent[rank]),
            "gather_v": (count, sum(received)),
            "scatter_v": (sum(sent), count),
            "all_to_all_v": (sum(sent), sum(received)),
        }.get(collective, (count, count))

    def reduce(self, collective, tensor, op, **members):
        number = _number_of(op, self.operation)
        if _OPERATORS[number] == "AVG" and not (tensor.is_floating_point() or tensor.is_complex()):
            raise RuntimeError(
                f"unisono: {self.operation}: AVG needs floating-point or complex tensors"
            )
        if tensor.dtype not in _TYPES:
            raise TypeError(
                f"unisono: {self.operation}: tensors of {tensor.dtype} cannot be reduced"
            )
        self.add(collective, type=_TYPES[tensor.dtype], op=number, **members)

    def give(self, outputs):
        """Starts the calls."""
        requests = []
        try:
            for call in self.calls:
                requests.append(self._start(call))
        except BaseException:
            # The library goes on to use what the calls before were lent.
            self._work(requests, outputs, copies=[])
            raise
        return self._work(requests, outputs, self.copies)

    def _start(self, call):
        request = ctypes.c_void_p()
        code = _library().unisono_start(
            self.group.comm, ctypes.byref(call), ctypes.byref(request)
        )
        _check(code, self.operation)
        return request

    def _work(self, requests, outputs, copies):
        works = self.group._works
        work = _PythonWork(works, self.operation, requests, self.lent, outputs, copies)
        works.add(work)
        works.given.append(work)
        _end_finished(works)
        return work


def _number_of(op, operation):
    for number, name in enumerate(_OPERATORS):
        if name is not None and op == getattr(dist.ReduceOp, name):
            return number
    raise RuntimeError(f"unisono: {operation}: {op} needs the compiled adapter")


def _bytes(tensors):
    return [tensor.nbytes for tensor in tensors]


def _plain(tensor):
    """The tensor's values as they lie in memory."""
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def _check_dense(tensor, operation):
    if tensor.layout != torch.strided:
        raise RuntimeError(f"unisono: {operation}: the tensor is sparse; that needs the adapter")
    if tensor.device.type != "cpu":
        raise RuntimeError(
            f"unisono: {operation}: the tensor is on {tensor.device}; that needs the adapter"
        )


def _check_alike(tensors, operation):
    if not tensors:
        raise RuntimeError(f"unisono: {operation}: the list of tensors is empty")
    for tensor in tensors:
        _check_dense(tensor, operation)
        if tensor.dtype != tensors[0].dtype:
            raise RuntimeError(
                f"unisono: {operation}: the tensors differ in type: {tensors[0].dtype} and "
                f"{tensor.dtype}"
            )


def _only(items, operation):
    if len(items) != 1:
        raise RuntimeError(
            f"unisono: {operation}: takes one tensor or list for each rank, not {len(items)}"
        )
    return items[0]


def _checked_tag(tag, operation):
    if tag < 0:
        raise RuntimeError(
            f"unisono: {operation}: the tag is {tag}, accepted are those from 0 on"
        )
    return tag


def _pairs(outputs, inputs, operation):
    if len(outputs) != len(inputs):
        raise RuntimeError(
            f"unisono: {operation}: {len(outputs)} outputs for {len(inputs)} inputs"
        )
    return zip(outputs, inputs)


class PurePythonGroup(dist.ProcessGroup):
    """Every call as one of the C API. torch's classes and methods have the names that it gives."""

    def __init__(self, store, rank, size, timeout, name):
        super().__init__(rank, size)
        self.timeout = timeout
        self._name = name
        self._uid = self._description = ""
        # torch may drop a work at once, while its call goes on: the next call or wait ends it.
        self._works = _Works()
        self.comm = _join(store, rank, size, timeout)
        weakref.finalize(self, _destroy, self.comm, self._works, os.getpid())

    def _is_root(self, root, operation):
        if not 0 <= root < self.size():
            raise RuntimeError(
                f"unisono: {operation}: the root is {root}, accepted are 0 to {self.size() - 1}"
            )
        return self.rank() == root

    def _list_of_root(self, lists, root, operation):
        if self._is_root(root, operation):
            return _only(lists, operation)
        if lists:
            raise RuntimeError(f"unisono: {operation}: a rank that is not the root has a list")
        return None

    def getBackendName(self):  # noqa: N802
        return self._name

    def name(self):
        return self._name

    supports_coalescing = supports_splitting = False

    def _get_backend(self, _device):
        return self

    def setGroupName(self, name):  # noqa: N802
        self._uid = name

    def getGroupName(self):  # noqa: N802
        return self._uid

    # torch 2.4 asks for these.
    _set_group_name = setGroupName
    group_name = property(getGroupName)

    def setGroupDesc(self, text):  # noqa: N802
        self._description = text

    def getGroupDesc(self):  # noqa: N802
        return self._description

    def allreduce(self, tensors, opts=None):
        _only(tensors, "all_reduce")
        return self._allreduce(tensors, opts or dist.AllreduceOptions())

    def allreduce_coalesced(self, tensors, opts=None):
        return self._allreduce(tensors, opts or dist.AllreduceCoalescedOptions())

    def _allreduce(self, tensors, opts):
        started = _Started(self, "all_reduce", opts)
        for tensor in tensors:
            data = started.write(tensor, reads_it_too=True)
            started.reduce(
                "all_reduce", tensor, opts.reduceOp, input=data, output=data, count=tensor.numel()
            )
        return started.give(tensors)

    def broadcast(self, tensors, opts):
        tensor = _only(tensors, "broadcast")
        self._is_root(opts.rootRank, "broadcast")
        started = _Started(self, "broadcast", opts)
        data = started.write(tensor, reads_it_too=True)
        started.add("broadcast", data, data, count=tensor.nbytes, root=opts.rootRank)
        return started.give(tensors)

    def reduce(self, tensors, opts):
        tensor = _only(tensors, "reduce")
        started = _Started(self, "reduce", opts)
        is_root = self._is_root(opts.rootRank, "reduce")
        data = started.write(tensor, reads_it_too=True) if is_root else started.read(tensor)
        started.reduce(
            "reduce", tensor, opts.reduceOp, input=data, output=data if is_root else None,
            count=tensor.numel(), root=opts.rootRank,
        )  # fmt: skip
        return started.give(tensors)

    def allgather(self, outputs, inputs, opts=None):
        tensor, parts = _only(inputs, "all_gather"), _only(outputs, "all_gather")
        started = _Started(self, "all_gather", opts)
        started.add(
            "all_gather_v", started.read(tensor), started.write_all(parts),
            out_counts=_bytes(parts),
        )  # fmt: skip
        return started.give(parts)

    def _allgather_base(self, output, tensor, opts=None):
        return self.allgather_into_tensor_coalesced([output], [tensor], opts)

    def allgather_into_tensor_coalesced(self, outputs, inputs, opts=None):
        started = _Started(self, "all_gather", opts)
        for output, tensor in _pairs(outputs, inputs, "all_gather"):
            started.add(
                "all_gather", started.read(tensor), started.write(output), count=tensor.nbytes
            )
        return started.give(outputs)

    def gather(self, outputs, inputs, opts):
        tensor = _only(inputs, "gather")
        parts = self._list_of_root(outputs, opts.rootRank, "gather")
        started = _Started(self, "gather", opts)
        members = {}
        if parts is not None:
            members = {"output": started.write_all(parts), "out_counts": _bytes(parts)}
        started.add(
            "gather_v", started.read(tensor), count=tensor.nbytes, root=opts.rootRank, **members
        )
        return started.give(parts or [])

    def scatter(self, outputs, inputs, opts):
        output = _only(outputs, "scatter")
        parts = self._list_of_root(inputs, opts.rootRank, "scatter")
        started = _Started(self, "scatter", opts)
        members = {}
        if parts is not None:
            members = {"input": started.read_all(parts), "in_counts": _bytes(parts)}
        started.add(
            "scatter_v", output=started.write(output), count=output.nbytes, root=opts.rootRank,
            **members,
        )  # fmt: skip
        return started.give(outputs)

    def reduce_scatter(self, outputs, inputs, opts):
        output, parts = _only(outputs, "reduce_scatter"), _only(inputs, "reduce_scatter")
        started = _Started(self, "reduce_scatter", opts)
        started.reduce(
            "reduce_scatter_v", output, opts.reduceOp, input=started.read_all(parts),
            output=started.write(output), in_counts=[part.numel() for part in parts],
        )  # fmt: skip
        return started.give(outputs)

    def _reduce_scatter_base(self, output, tensor, opts):
        return self.reduce_scatter_tensor_coalesced([output], [tensor], opts)

    def reduce_scatter_tensor_coalesced(self, outputs, inputs, opts):
        started = _Started(self, "reduce_scatter", opts)
        for output, tensor in _pairs(outputs, inputs, "reduce_scatter"):
            started.reduce(
                "reduce_scatter", tensor, opts.reduceOp, input=started.read(tensor),
                output=started.write(output), count=output.numel(),
            )  # fmt: skip
        return started.give(outputs)

    def alltoall_base(self, output, tensor, out_splits, in_splits, opts=None):
        started = _Started(self, "all_to_all", opts)
        started.add(
            "all_to_all_v", started.read(tensor), started.write(output),
            in_counts=self._split(tensor, in_splits), out_counts=self._split(output, out_splits),
        )  # fmt: skip
        return started.give([output])

    def _split(self, tensor, splits):
        rows = tensor.size(0) if tensor.dim() else 1
        splits = splits or [rows // self.size()] * self.size()
        if sum(splits) != rows:
            raise RuntimeError(
                f"unisono: all_to_all: the split sizes add up to {sum(splits)}, the first "
                f"dimension is {rows}"
            )
        return [each * (tensor.nbytes // rows if rows else 0) for each in splits]

    def alltoall(self, outputs, inputs, opts=None):
        started = _Started(self, "all_to_all", opts)
        started.add(
            "all_to_all_v", started.read_all(inputs), started.write_all(outputs),
            in_counts=_bytes(inputs), out_counts=_bytes(outputs),
        )  # fmt: skip
        return started.give(outputs)

    def send(self, tensors, target, tag=0):
        tensor = _only(tensors, "send")
        started = _Started(self, "send")
        started.add(
            "send", started.read(tensor), count=tensor.nbytes, peer=target,
            tag=_checked_tag(tag, "send"),
        )  # fmt: skip
        return started.give(tensors)

    def recv(self, tensors, source, tag=0):
        tensor = _only(tensors, "recv")
        started = _Started(self, "recv")
        started.add(
            "receive", output=started.write(tensor), count=tensor.nbytes, peer=source,
            tag=_checked_tag(tag, "recv"),
        )  # fmt: skip
        return started.give(tensors)

    def recv_anysource(self, tensors, tag=0):
        return self.recv(tensors, _ANY_RANK, tag)

    def barrier(self, opts=None):
        started = _Started(self, "barrier", opts)
        started.add("barrier")
        return started.give([])

    def abort(self):
        _library().unisono_comm_abort(self.comm, b"abort() of the process group")

    def shutdown(self):
        _library().unisono_comm_close(self.comm)

    def split_group(self, *_arguments, **_options):
        raise RuntimeError("unisono: split_group needs the compiled adapter; use new_group")

    merge_remote_group = split_group

    # Names that torch 2.14 gives.
    all_gather_single = _allgather_base
    reduce_scatter_single = _reduce_scatter_base
    all_to_all_single = alltoall_base
