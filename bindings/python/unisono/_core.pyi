"""The extension; users import `unisono`. Collectives are numbers here, None stands for defaults."""

from typing import Any, Callable, Dict, List, Optional, Sequence, Tuple, Union, final

class Block:
    """Bytes that a function of the user's sees, by the buffer protocol, until it returns."""

    def __buffer__(self, flags: int) -> memoryview: ...

@final
class Op:
    """A reduction operator."""

    @property
    def name(self) -> str: ...

OP_sum: Op
OP_product: Op
OP_min: Op
OP_max: Op
OP_average: Op
OP_bit_and: Op
OP_bit_or: Op
OP_bit_xor: Op
OP_logical_and: Op
OP_logical_or: Op
OP_logical_xor: Op

def premultiplied_sum(factor: float) -> Op: ...
def user_op(
    name: str, function: Callable[[Block, Block, str], None], commutative: bool
) -> Op: ...

class Memory:
    """Writable bytes by the buffer protocol."""

    def __len__(self) -> int: ...
    def __buffer__(self, flags: int) -> memoryview: ...

class PendingCall:
    def test(self) -> bool: ...
    def wait(self, timeout: Optional[float] = None) -> bool: ...
    def on_completion(self, function: Callable[[], None]) -> None: ...
    def status(self) -> Tuple[int, int, str]: ...
    @property
    def is_settled(self) -> bool: ...
    @property
    def source(self) -> int: ...
    @property
    def tag(self) -> int: ...
    @property
    def count(self) -> int: ...

class GroupedCall: ...

_Traffic = Tuple[int, int, int, int]

class Member:
    def run(self, collective: int, *call: Any, **options: Any) -> None: ...
    def start(self, collective: int, *call: Any, **options: Any) -> PendingCall: ...
    def receive(self, collective: int, *call: Any, **options: Any) -> Tuple[int, int, int]: ...
    def prepare(self, collective: int, *call: Any, **options: Any) -> GroupedCall: ...
    def all_reduce_addends(self, calls: Sequence[GroupedCall]) -> None: ...
    def refuse_addends(self, timeout: Optional[float]) -> None: ...
    def send_receive(
        self, sent: GroupedCall, received: GroupedCall
    ) -> Tuple[int, int, int]: ...
    def split(self, color: int, key: int) -> Member: ...
    def duplicate(self) -> Member: ...
    def subset(self, ranks: Sequence[int]) -> Member: ...
    def shrink(self, timeout: Optional[float]) -> Member: ...
    def traffic(self) -> Tuple[Dict[str, Tuple[int, _Traffic]], List[_Traffic]]: ...
    def allocate(self, bytes: int) -> Memory: ...
    def explain(self, collective: str, bytes: int) -> str: ...
    def end_loan(self) -> None: ...
    def end(self) -> None: ...
    def forget_threads(self) -> None: ...
    def abort(self, reason: str, failed_rank: Optional[int]) -> None: ...
    def close(self) -> None: ...
    def status(self) -> Tuple[int, int, str]: ...
    def parent_failed_in(self) -> Tuple[int, bool]: ...
    def host_of(self, rank: int) -> str: ...
    def describe(self) -> str: ...
    @property
    def empty(self) -> bool: ...
    @property
    def rank(self) -> int: ...
    @property
    def size(self) -> int: ...

class Registration:
    def __init__(self, member: Member, array: Any, fd: int, offset: int) -> None: ...
    def describe(self) -> Optional[Tuple[str, str, bool, str]]: ...
    def end(self) -> None: ...

class Helpers:
    def __init__(self, threads: int) -> None: ...
    def end(self) -> None: ...

def init(
    rendezvous: str,
    rank: int,
    size: int,
    job_key: str,
    transport: str,
    timeout: Optional[float],
    device: int,
    order: str,
    store: Optional[Any],
) -> Member: ...
def join_store(
    store: Any,
    name: str,
    rank: int,
    size: int,
    job_key: str,
    transport: str,
    timeout: Optional[float],
    device: int,
    order: str,
) -> Member: ...
def join_id(
    id: bytes,
    rank: int,
    size: int,
    transport: str,
    timeout: Optional[float],
    device: int,
    order: str,
) -> Member: ...
def rejoin(
    store: Any,
    name: str,
    key: int,
    job_key: str,
    transport: str,
    timeout: Optional[float],
    device: int,
    order: str,
) -> Member: ...
def grow(
    member: Member,
    store: Optional[Any],
    name: str,
    at_least: int,
    at_most: int,
    wait: Optional[float],
    key: int,
    timeout: Optional[float],
) -> Member: ...
def unique_id() -> bytes: ...
def spawn(
    n: int,
    body: Callable[[Member], None],
    transport: str,
    timeout: Optional[float],
    devices: Sequence[int],
) -> None: ...
def group(calls: Sequence[Tuple[Member, GroupedCall]]) -> None: ...
def wait_all(calls: Sequence[PendingCall]) -> None: ...
def wait_any(calls: Sequence[PendingCall]) -> int: ...

_Parts = Union[List[Any], str]

def gather_objects(
    member: Member,
    parts: _Parts,
    root: int,
    staging_bytes: int,
    size_limit: int,
    timeout: Optional[float],
) -> Optional[List[List[Any]]]: ...
def all_gather_objects(
    member: Member, parts: _Parts, staging_bytes: int, size_limit: int, timeout: Optional[float]
) -> List[List[Any]]: ...
def broadcast_object(
    member: Member,
    parts: _Parts,
    root: int,
    staging_bytes: int,
    size_limit: int,
    timeout: Optional[float],
) -> Optional[List[Any]]: ...
def scatter_objects(
    member: Member,
    objects: Sequence[_Parts],
    root: int,
    staging_bytes: int,
    size_limit: int,
    timeout: Optional[float],
) -> List[Any]: ...

_Fill = Callable[[int, Block], None]
_Sink = Callable[[int, int, int, Block], None]

def stream_gather_objects(
    member: Member,
    data: Any,
    size: int,
    fill: Optional[_Fill],
    sink: Optional[_Sink],
    root: int,
    staging_bytes: int,
    size_limit: int,
    timeout: Optional[float],
) -> None: ...
def stream_all_gather_objects(
    member: Member,
    data: Any,
    size: int,
    fill: Optional[_Fill],
    sink: Optional[_Sink],
    staging_bytes: int,
    size_limit: int,
    timeout: Optional[float],
) -> None: ...
def stream_broadcast_object(
    member: Member,
    data: Any,
    size: int,
    fill: Optional[_Fill],
    sink: Optional[_Sink],
    root: int,
    staging_bytes: int,
    size_limit: int,
    timeout: Optional[float],
) -> None: ...
def text_of(exception: BaseException) -> str: ...
def set_error_maker(function: Callable[..., BaseException]) -> None: ...
def close_interpreter() -> None: ...
def destroy_buried() -> None: ...
def forget_threads() -> None: ...
def version() -> str: ...
