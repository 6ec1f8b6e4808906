"""all_gather_object without the copies that torch's own makes.

torch puts a pickle into a tensor, gathers all of them, and copies each one out twice: for 100 MB on
each of two ranks that is more time and memory than the gathering takes. Here a large part of a
pickle goes from the object into the memory in which it stays on the other ranks.
"""

import collections
import functools
import pickle

import torch
import torch.distributed as dist

from unisono_torch import NAME, abort

LARGE = 1 << 20  # bytes from which on a part of a pickle is not copied together with others


class _Written:
    """The file that a pickle is written to: large parts as they are, small ones joined."""

    def __init__(self):
        self.parts = []

    def write(self, data):
        part = memoryview(data).cast("B")
        if len(part) >= LARGE:
            self.parts.append(part)
        elif self.parts and isinstance(self.parts[-1], bytearray):
            self.parts[-1] += part
        else:
            self.parts.append(bytearray(part))


class _Arriving:
    """The file that the pickle of `source` is read from. A part is broadcast when it is needed."""

    def __init__(self, sizes, source, group, parts):
        self.sizes = collections.deque(sizes)
        self.parts = collections.deque(parts)  # of the source itself
        self.source = dist.get_global_rank(group, source)
        self.group = group
        self.rest = memoryview(b"")  # of the part that came last

    def next_part(self, room):
        if self.parts:
            room[:] = self.parts.popleft()
        self.sizes.popleft()
        dist.broadcast(torch.frombuffer(room, dtype=torch.uint8), self.source, group=self.group)

    def readinto(self, room):
        room = memoryview(room).cast("B")
        done = 0
        while done < len(room) and (self.rest or self.sizes):
            wanted = len(room) - done
            if not self.rest and self.sizes[0] == wanted:
                self.next_part(room[done:])
                return len(room)
            if not self.rest:
                self.rest = memoryview(bytearray(self.sizes[0]))
                self.next_part(self.rest)
            taken, self.rest = self.rest[:wanted], self.rest[wanted:]
            room[done : done + len(taken)] = taken
            done += len(taken)
        return done

    def read(self, count):
        room = bytearray(count)
        return bytes(room[: self.readinto(room)])

    def readline(self):
        line = bytearray()
        while not line.endswith(b"\n") and (byte := self.read(1)):
            line += byte
        return bytes(line)

    def skip(self):
        while self.sizes:
            self.next_part(memoryview(bytearray(self.sizes[0])))


def _pickled(obj):
    written = _Written()
    pickle.Pickler(written, protocol=5).dump(obj)
    return written.parts


def _gathered(values, count, group):
    """Each rank's list, filled up with zeros to `count` values."""
    mine = torch.zeros(count, dtype=torch.int64)
    mine[: len(values)] = torch.tensor(values, dtype=torch.int64)
    every = [torch.empty_like(mine) for _ in range(dist.get_world_size(group))]
    dist.all_gather(every, mine, group=group)
    return [each.tolist() for each in every]


def _skip_or_abort(arriving, group):
    """Nobody waits for a rank that has no memory for its part in what is to come."""
    try:
        arriving.skip()
    except MemoryError:
        abort(group)
        raise


def all_gather_object(object_list, obj, group=None):
    """As torch.distributed.all_gather_object, for groups that move CPU tensors. Where a rank cannot
    pickle its object all raise, and the group stays of use."""
    group = group or dist.group.WORLD
    if dist.get_rank(group) < 0:
        return
    parts, failure = [], None
    try:
        parts = _pickled(obj)
    except Exception as error:  # the others wait for this rank: they are told
        failure = error
    counts = _gathered([len(parts) if failure is None else -1], 1, group)
    if failure is not None:
        raise failure
    for source, (count,) in enumerate(counts):
        if count < 0:
            raise RuntimeError(
                f"unisono: all_gather_object: rank {source} of the group cannot pickle its object; "
                "what it raises says why"
            )
    sizes = _gathered([len(part) for part in parts], max(count for (count,) in counts), group)
    for source, (count,) in enumerate(counts):
        own = parts if source == dist.get_rank(group) else ()
        arriving = _Arriving(sizes[source][:count], source, group, own)
        try:
            object_list[source] = pickle.Unpickler(arriving).load()
        except Exception as error:  # the others wait for this rank's part in what is to come
            failure = failure or error
        _skip_or_abort(arriving, group)
    if failure is not None:
        raise failure


def install():
    """Has torch.distributed.all_gather_object be this one in groups of unisono."""
    theirs = dist.all_gather_object

    @functools.wraps(theirs)
    def call(object_list, obj, group=None, **named):
        is_ours = dist.get_rank(group) >= 0 and dist.get_backend(group) == NAME
        # What newer versions of torch can be asked for besides is theirs to do.
        if is_ours and not any(named.values()):
            return all_gather_object(object_list, obj, group)
        return theirs(object_list, obj, group, **named)

    for module in (dist, dist.distributed_c10d):
        module.all_gather_object = call
