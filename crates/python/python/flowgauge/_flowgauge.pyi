import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from os import PathLike
from typing import Any, Literal, Protocol, Self, TypeAlias, TypedDict, Unpack, final, overload

_Path: TypeAlias = str | PathLike[str]
_Texts: TypeAlias = str | Sequence[str]
_Measure: TypeAlias = str | Mapping[str, str | Mapping[str, Any]] | Iterable[Any]

__version__: str

class _Stream(Protocol):
    def read(self, size: int, /) -> bytes: ...

class _Options(TypedDict, total=False):
    """Options of the command line, with underscores for dashes; those of one measurement or of all."""

    filter: str | None
    key: str | None
    by: Literal["packets", "bytes"] | None
    task: _Texts | None
    epoch: str | None
    updates: str | None
    threshold: str | int | None
    spread: int | None
    spread_of: Literal["address", "port", "endpoint"] | None
    forecast: Literal["ewma", "moving-average", "holt-winters"] | None
    top: int | None
    hierarchy: Literal["bytes", "bits", "pair"] | None
    flow: _Texts | None
    algorithm: str | None
    error: str | None
    rate: str | None
    accelerator: _Texts | None
    audit: str | None
    memory: str | int | None
    count: int | None
    inner: bool | None
    bytes_of: Literal["outer", "inner"] | None
    config: _Path | None
    preset: Literal["overview", "flows"] | None
    workers: int | None
    shared: bool | None
    dispatch: Literal["digest", "queue"] | None
    overrun: Literal["wait", "drop"] | None
    pin: bool | None
    seed: int | None
    seed_file: _Path | None
    limit: int | None

class _Columns(TypedDict, total=False):
    """Columns of packets: one value for all, or an array with one for each."""

    source: Any
    destination: Any
    source_port: Any
    destination_port: Any
    protocol: Any
    length: Any
    time_ns: Any

class _Coverage(TypedDict):
    host: str
    run: int
    epoch: int
    start_ns: int
    end_ns: int
    observed_from_ns: int
    observed_to_ns: int

def analyze(
    paths: _Path | Part | _Stream | Iterable[_Path | Part] | Iterable[_Stream],
    measure: _Measure | None = None,
    *,
    as_given: bool = False,
    snapshots: bool = False,
    **options: Unpack[_Options],
) -> Reports: ...

def cut(path: _Path, parts: int) -> list[Part]: ...

@final
class Part:
    def __new__(cls, path: _Path, offset: int = 0, length: int | None = None) -> Self: ...
    @property
    def path(self) -> pathlib.Path: ...
    @property
    def offset(self) -> int: ...
    @property
    def length(self) -> int | None: ...
    def __eq__(self, other: object, /) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Table:
    @property
    def name(self) -> str: ...
    @property
    def columns(self) -> list[str]: ...
    def __len__(self) -> int: ...
    def __arrow_c_stream__(self, requested_schema: object | None = None) -> object: ...
    def __arrow_c_schema__(self) -> object: ...

@final
class Report:
    @property
    def kind(self) -> Literal["epoch", "update", "gap", "total"]: ...
    @property
    def measurement(self) -> str: ...
    @property
    def epoch(self) -> int | None: ...
    @property
    def start_ns(self) -> int | None: ...
    @property
    def end_ns(self) -> int | None: ...
    @property
    def tables(self) -> list[str]: ...
    def __getitem__(self, name: str, /) -> Table: ...
    def __contains__(self, name: str, /) -> bool: ...
    def json(self) -> str: ...
    def dict(self) -> dict[str, Any]: ...

@final
class Reports:
    def __len__(self) -> int: ...
    @overload
    def __getitem__(self, place: int, /) -> Report: ...
    @overload
    def __getitem__(self, place: str, /) -> Table: ...
    def __iter__(self) -> Iterator[Report]: ...
    def table(self, name: str, measurement: str | None = None) -> Table: ...
    @property
    def gaps(self) -> list[Report]: ...
    @property
    def totals(self) -> list[Report]: ...
    @property
    def problems(self) -> list[str]: ...
    @property
    def snapshots(self) -> list[Snapshot]: ...

@final
class Meter:
    def __new__(
        cls,
        measure: _Measure | None = None,
        *,
        link: int = 1,
        snapshots: bool = False,
        **options: Unpack[_Options],
    ) -> Self: ...
    def push(
        self,
        frames: bytes | bytearray | Iterable[bytes | bytearray],
        time_ns: int | Iterable[int] | None = None,
        length: int | Iterable[int] | None = None,
    ) -> None: ...
    def push_columns(self, **columns: Unpack[_Columns]) -> None: ...
    def advance(self, time_ns: int) -> None: ...
    def reports(self) -> Reports: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(self, *raised: object) -> None: ...

@final
class Snapshot:
    @staticmethod
    def load(
        source: _Path | bytes | bytearray,
        *,
        memory: str | int | None = None,
        seed_file: _Path | None = None,
    ) -> Snapshot: ...
    @property
    def measurement(self) -> str: ...
    @property
    def key(self) -> str: ...
    @property
    def algorithm(self) -> str: ...
    @property
    def coverage(self) -> list[_Coverage]: ...
    def merge(self, *others: Snapshot) -> Self: ...
    def check_aligned(self, tolerance: str = "0s") -> None: ...
    def query(
        self,
        task: _Texts | None = None,
        *,
        key: str | None = None,
        flow: _Texts | None = None,
        top: int = 10,
    ) -> Report: ...
    def cells(self) -> Table: ...
    def registers(self) -> Table: ...
    def places(self, flow: str) -> tuple[int, list[tuple[int, int]]]: ...
    def __bytes__(self) -> bytes: ...
