"""Which arrays the calls take, without copies, and what they say about others."""

import array
import ctypes
import fcntl
import gc
import mmap
import os
import sys
import time
import weakref

import numpy as np
import pytest

import unisono


class OnlyDlpack:
    """An array of a library that is not NumPy."""

    def __init__(self, data, device=None):
        self.data = data
        self.device = device

    def __dlpack_device__(self):
        return self.device or self.data.__dlpack_device__()

    def __dlpack__(self, **options):
        return self.data.__dlpack__(**options)


class OldDlpack(OnlyDlpack):
    """Of before version 1: it knows no max_version."""

    def __dlpack__(self, stream=None):
        return self.data.__dlpack__()


@pytest.mark.parametrize("kind", [OnlyDlpack, OldDlpack])
def test_dlpack(comm, kind):
    data = np.full((2, 3), comm.rank + 1, np.float32)
    given = kind(data)
    assert comm.all_reduce(given) is given
    assert (data == sum(range(1, comm.size + 1))).all()


def test_dlpack_of_other_devices(comm):
    with pytest.raises(unisono.InvalidArgument, match="DLPack's type 7"):
        comm.all_reduce(OnlyDlpack(np.ones(2), device=(7, 0)))


def test_read_only_dlpack(comm):
    data = np.ones(2)
    data.flags.writeable = False
    with pytest.raises((unisono.InvalidArgument, BufferError), match="read-?only"):
        comm.all_reduce(OnlyDlpack(data))


def test_buffers_of_the_standard_library(comm):
    total = comm.size * (comm.size + 1) // 2
    numbers = array.array("i", [comm.rank + 1] * 3)
    comm.all_reduce(numbers)
    assert numbers.tolist() == [total] * 3

    doubles = (ctypes.c_double * 2)(comm.rank + 1, 0)
    comm.all_reduce(doubles)
    assert list(doubles) == [total, 0]

    raw = bytearray(b"x" * comm.size)
    comm.all_gather(bytes([65 + comm.rank]), raw)
    assert raw == bytes(range(65, 65 + comm.size))

    view = memoryview(bytearray(4))
    comm.broadcast(b"word" if comm.rank == 0 else view)  # root's is only read
    assert comm.rank == 0 or view == b"word"


def test_empty_arrays_and_scalars(comm):
    empty = np.empty((0, 3))
    assert comm.all_reduce(empty) is empty
    point = np.array(1.0)
    comm.all_reduce(point)
    assert point == comm.size


def test_slices_are_written_in_place(comm):
    data = np.zeros((3, 4))
    comm.all_reduce(data[1])
    data[1] += 1
    comm.all_reduce(data[1:2])
    assert data[1].tolist() == [comm.size] * 4 and not data[0].any() and not data[2].any()


REFUSED = [
    (lambda: np.ones((3, 3))[:, 1], r"in_ is not C-contiguous: give"),
    (lambda: np.ones((3, 3), order="F"), r"in_ is not C-contiguous"),
    (lambda: np.broadcast_to(np.ones(1), 3), r"in_ is not C-contiguous"),
    (lambda: b"abc", r"in_ is read-only \(bytes\) and the call writes to it"),
    (lambda: [1.0, 2.0], r"in_ is of type list, which is no array"),
    (lambda: None, r"no array is given"),
    (lambda: np.array([{}, {}]), r"holds Python objects or pointers"),
    (lambda: np.array(["a", "b"]), r"cannot be reduced: give integers, floats"),
    (lambda: np.ones(2, ">f8"), r"cannot be reduced"),
    (lambda: np.ones(2, np.longdouble), r"cannot be reduced"),
]


@pytest.mark.parametrize("make, message", REFUSED)
def test_what_is_refused(comm, make, message):
    with pytest.raises(unisono.InvalidArgument, match=message) as caught:
        comm.all_reduce(make())
    assert caught.value.operation == "all_reduce"
    assert isinstance(caught.value, ValueError)
    comm.barrier()  # it was the call's failure alone


@pytest.mark.parametrize(
    "name",
    [
        "all_reduce", "reduce", "scan", "exscan", "reduce_scatter", "all_gather", "gather",
        "scatter", "all_to_all",
    ],
)  # fmt: skip
@pytest.mark.parametrize("length", [0, 12])
def test_inputs_that_are_missing(comm, name, length):
    out = np.full(length, 7.0)
    if name == "scatter" and comm.rank != 0:
        return comm.barrier()  # only root has one
    with pytest.raises(unisono.InvalidArgument, match="in_ is missing: .* in place"):
        getattr(comm, name)(None, out)
    assert (out == 7).all()
    comm.barrier()


def test_inputs_that_may_be_missing(comm):
    """Those of no elements where blocks are uneven."""
    counts = [2 * (rank == 0) for rank in range(comm.size)]
    out = np.zeros(2)
    comm.all_gather_v(np.ones(2) if comm.rank == 0 else None, out, counts)
    assert out.tolist() == [1, 1]


def test_outputs_that_are_refused(comm):
    data = np.ones(4)
    read_only = np.ones(4)
    read_only.flags.writeable = False
    with pytest.raises(unisono.InvalidArgument, match="out is read-only"):
        comm.all_reduce(data, read_only)
    with pytest.raises(unisono.InvalidArgument, match="out is not C-contiguous"):
        comm.all_reduce(data, np.ones(8)[::2])
    with pytest.raises(unisono.InvalidArgument, match="float64 and out of float32"):
        comm.all_reduce(data, np.ones(4, np.float32))
    with pytest.raises(unisono.InvalidArgument, match="out has 3 elements and 4 are needed"):
        comm.all_reduce(data, np.ones(3))
    with pytest.raises(unisono.InvalidArgument, match="are needed"):
        comm.all_gather(data, np.ones(4 * comm.size - 1))
    with pytest.raises(unisono.InvalidArgument, match="no blocks of one length"):
        comm.all_to_all(np.ones(comm.size + 1), np.ones(comm.size + 1))
    with pytest.raises(unisono.InvalidArgument, match="counts; one for each"):
        comm.all_gather_v(data, np.ones(9), [4])
    both = np.ones(8)
    with pytest.raises(unisono.InvalidArgument, match="overlap"):
        comm.all_reduce(both[:4], both[2:6])


def test_blocks_that_go_out_may_overlap(comm):
    """Also where the root's own stays in the array."""
    counts, displacements = [4] * comm.size, [0] * comm.size
    data = np.arange(4.0) if comm.rank == 0 else np.empty(4)
    if comm.rank == 0:
        comm.scatter_v(data, None, counts, displacements)
    else:
        comm.scatter_v(data)
    assert data.tolist() == [0, 1, 2, 3]


def test_options_that_are_refused(comm):
    data = np.ones(2)
    with pytest.raises(unisono.InvalidArgument, match="'fast': give 'any', 'canonical' or 'exact'"):
        comm.all_reduce(data, order="fast")
    with pytest.raises(unisono.InvalidArgument, match="timeout is -1"):
        comm.all_reduce(data, timeout=-1)
    with pytest.raises(unisono.Error, match="nonsense"):
        comm.all_reduce(data, algorithm="nonsense")
    with pytest.raises(unisono.InvalidArgument, match="op is of type builtin_function"):
        comm.all_reduce(data, op=sum)
    with pytest.raises(unisono.InvalidArgument, match="root 99"):
        comm.broadcast(data, root=99)
    with pytest.raises(unisono.InvalidArgument, match="algorithm is of type int"):
        comm.all_reduce(data, algorithm=3)
    with pytest.raises(unisono.InvalidArgument, match="stream is of type str"):
        comm.all_reduce(data, stream="s")
    with pytest.raises(TypeError):
        comm.all_reduce(data, speed=1)


def test_arrays_that_hold_objects(comm):
    for dtype in ([("t", "M8[s]"), ("o", "O")], [("o", "O")], "O"):
        with pytest.raises(unisono.InvalidArgument, match="Python objects"):
            comm.broadcast(np.zeros(2, dtype))


def test_records_of_complex_numbers(comm):
    data = np.zeros(2, [("z", np.complex64), ("g", np.clongdouble)])
    data["z"] = comm.rank + 1j
    assert comm.broadcast(data)["z"].tolist() == [1j, 1j]


def test_functions_of_ctypes(comm):
    with pytest.raises(unisono.InvalidArgument, match="pointers"):
        comm.broadcast((ctypes.CFUNCTYPE(None) * 2)())


class OfHalfBytes:
    """Integers of 4 bits by DLPack, two to a byte."""

    class Tensor(ctypes.Structure):
        _fields_ = [
            ("data", ctypes.c_void_p), ("device", ctypes.c_int32 * 2),
            ("dimensions", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8),
            ("lanes", ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)),
            ("strides", ctypes.c_void_p), ("offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
            ("deleter", ctypes.c_void_p),
        ]  # fmt: skip

    def __init__(self):
        self.bytes = ctypes.create_string_buffer(4)
        self.shape = (ctypes.c_int64 * 1)(8)
        self.tensor = self.Tensor(
            ctypes.addressof(self.bytes), (1, 0), 1, 0, 4, 1, self.shape, None, 0, None, None
        )

    def __dlpack_device__(self):
        return (1, 0)

    def __dlpack__(self, **_):
        make = ctypes.pythonapi.PyCapsule_New
        make.restype = ctypes.py_object
        make.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        return make(ctypes.addressof(self.tensor), b"dltensor", None)


def test_elements_that_share_bytes(comm):
    with pytest.raises(unisono.InvalidArgument, match="4 bits"):
        comm.broadcast(OfHalfBytes())


def test_calls_keep_no_references(comm):
    data, out = np.ones(10), np.ones(10)
    before = sys.getrefcount(data), sys.getrefcount(out)
    for _ in range(100):
        comm.all_reduce(data, out)
        comm.all_reduce_async(data, out).wait()
        with pytest.raises(unisono.InvalidArgument):
            comm.all_reduce(data, np.ones(3))
    gc.collect()
    assert (sys.getrefcount(data), sys.getrefcount(out)) == before

    buffer = bytearray(4)
    comm.broadcast(buffer)
    buffer.append(1)  # BufferError while it is lent


def test_requests_keep_arrays_until_they_are_over(comm):
    class Watched(np.ndarray):
        pass

    data = np.zeros(8).view(Watched)
    seen = weakref.ref(data)
    before = comm.receive_async(data, comm.rank, tag=5)
    del data
    gc.collect()
    assert seen() is not None
    comm.send(np.arange(8.0), comm.rank, tag=5)
    assert before.wait().count == 8
    assert seen() is None  # a receive gives what came, not the array


def test_dropped_requests_go_on(comm):
    """Nothing waits, and the arrays live until the library has let go."""

    class Watched(np.ndarray):
        pass

    data = np.zeros(8).view(Watched)
    seen = weakref.ref(data)
    comm.receive_async(data, comm.rank, tag=6)  # dropped at once
    del data
    gc.collect()
    assert seen() is not None
    seen_data = seen()
    comm.send(np.arange(8.0), comm.rank, tag=6)
    end = time.monotonic() + 10
    while seen_data[-1] != 7 and time.monotonic() < end:
        time.sleep(0.001)  # the library goes on by itself
    assert seen_data.tolist() == list(range(8))
    del seen_data
    while seen() is not None and time.monotonic() < end:
        time.sleep(0.001)
    assert seen() is None


def test_shared_memory_of_the_job(comm):
    data = comm.allocate((3, 1000), np.float32)
    assert data.shape == (3, 1000) and data.dtype == np.float32 and data.flags.writeable
    assert data.ctypes.data % 64 == 0
    data[:] = comm.rank
    comm.all_reduce(data)
    assert (data == sum(range(comm.size))).all()
    assert comm.allocate(np.int64(10)).shape == (10,)
    assert comm.allocate(0).size == 0 and comm.allocate(()).shape == ()
    with pytest.raises(ValueError):
        comm.allocate(-1)
    part = data[1]
    del data
    gc.collect()
    part[:] = 1  # the memory lives as long as any view of it


def test_registered_memory(comm):
    data = np.full(100_000, comm.rank + 1.0)
    with comm.register(data) as registered:
        assert registered.access.peers in ("single_copy", "copied") and registered.access.reason
        assert registered.access.pinned == (not registered.access.pinned_reason)
        comm.all_reduce(data)
        with pytest.raises(unisono.InvalidArgument, match="overlap"):
            comm.register(data[10:20])
    assert (data == sum(range(1, comm.size + 1))).all()
    assert registered.access is None
    registered.close()
    comm.register(data[10:20]).close()
    with pytest.raises(unisono.InvalidArgument):
        comm.register(data[::2])


def test_registered_memory_of_a_file_is_read_in_place(comm):
    fd = os.memfd_create("array", os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, 1 << 20)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
    with mmap.mmap(fd, 1 << 20) as mapped:
        data = np.frombuffer(mapped)
        with comm.register(data, source=(fd, 0)) as registered:
            os.close(fd)
            assert registered.access.peers == "mapped", registered.access.reason
            data[:] = comm.rank
            comm.all_reduce(data)
            assert (data == sum(range(comm.size))).all()
        with pytest.raises(unisono.InvalidArgument):
            comm.register(data, source=(fd, 0))  # no open descriptor, or another file's
        del data
