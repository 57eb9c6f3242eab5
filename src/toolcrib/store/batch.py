"""The queue in front of the single writer: requests since the last transaction, and their callers.

All requests of a batch share one transaction. It is tried as a whole first. If a request fails, the batch is retried
with every request in its own savepoint (`Apart`), so that an error reaches only its own caller.

Must never drop a request because its caller was cancelled: an outcome is recorded whether or not it is awaited.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from sqlalchemy import Delete, Dialect, Insert, Select, Table, Update, insert
from sqlalchemy.sql.compiler import ExpandedState, SQLCompiler

from toolcrib.model.errors import Unavailable
from toolcrib.store.schema import StoredText, stored_text

if TYPE_CHECKING:
    from toolcrib.store.side_connection import SideConnection

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Mapping[str, Any]
Converters: TypeAlias = Mapping[str, Callable[[Any], Any]]
OnFailure: TypeAlias = Callable[[Exception], None]


class ConstraintError(Exception):
    """A write violated a constraint of its table and was rolled back.

    Modules of aggregates convert it to their own `Conflict`; it must not leave the store.
    """


class Log(ABC, Generic[Item]):
    """An append-only table whose rows are built when they are committed, in commit order.

    `head` is what the next row is built from. The writer restores it if rows were built but not committed.
    """

    table: Table
    head: Any
    reads_policy_epoch: ClassVar[bool] = False
    """Whether the statement that inserts rows also reads the epoch of the permissions, on a shared database."""

    @abstractmethod
    def rows(self, items: Sequence[Item]) -> list[Row]:
        """Return one row per item, in the order of the table's columns, its number first; advance `head`."""

    @abstractmethod
    def tail(self) -> "Select[*tuple[Any, ...]]":
        """Return the query whose rows `resume` needs."""

    @abstractmethod
    def resume(self, rows: Sequence[Row]) -> None:
        """Set `head` from the database: another process has written, or the result of a commit was lost."""

    @abstractmethod
    def committed(self) -> None:
        """Called after every commit, when `head` is in the database; must not raise."""


class Journalled(Log[Item]):
    """A log whose rows can be written as lines and rebuilt from them after a crash."""

    @abstractmethod
    def line(self, row: Row) -> bytes:
        """Return the row as one line, without a line feed."""


@dataclass(frozen=True, slots=True)
class Many:
    """One statement run for each of these rows, at least one; every row sets all parameters."""

    statement: Insert | Update | Delete
    rows: Sequence[Parameters]


Statement: TypeAlias = Insert | Update | Delete | Many


class Prepared(NamedTuple):
    """SQL of one engine and its parameters: one set, or many."""

    sql: str
    parameters: Parameters | list[Parameters]


def prepare(statement: Statement | Select[*tuple[Any, ...]], dialect: Dialect) -> Prepared:
    """Compile a statement for an engine and convert its values to the types of their columns."""
    if isinstance(statement, Many):
        sql, convert = _prepare(statement.statement, dialect, tuple(statement.rows[0]))
        return Prepared(sql, [_convert(row, convert) for row in statement.rows])
    compiled = statement.compile(dialect=dialect)
    state = compiled.construct_expanded_state()
    return Prepared(state.statement, _convert(state.parameters, _converters(compiled, dialect, state)))


@lru_cache(maxsize=64)
def _prepare(statement: Insert | Update | Delete, dialect: Dialect, names: tuple[str, ...]) -> tuple[str, Converters]:
    """Return SQL for any rows with these names; cached, since compiling takes longer than writing."""
    compiled = statement.compile(dialect=dialect, column_keys=list(names))
    state = compiled.construct_expanded_state(dict.fromkeys(names))
    return state.statement, _converters(compiled, dialect, state)


def _converters(compiled: SQLCompiler, dialect: Dialect, state: ExpandedState) -> Converters:
    found = ((name, bind.type.dialect_impl(dialect).bind_processor(dialect)) for name, bind in compiled.binds.items())
    usual = {name: processor for name, processor in found if processor is not None} | dict(state.processors)
    texts = {
        name: stored_text
        for name, bind in compiled.binds.items()
        if name in usual and isinstance(bind.type, StoredText)
    }
    return usual | texts  # nearly all values are text, and SQLAlchemy's wrapper costs more than the conversion


def _convert(parameters: Parameters, convert: Converters) -> Parameters:
    return {name: convert[name](value) if name in convert else value for name, value in parameters.items()}


class QueuedWrite:
    """Statements of one caller, which receives the number of rows each affected."""

    __slots__ = ("counts", "future", "statements")
    callers = 1

    def __init__(self, statements: Sequence[Prepared], future: "asyncio.Future[tuple[int, ...]]") -> None:
        self.statements = statements
        self.future = future
        self.counts: tuple[int, ...] = ()

    def parts(self) -> "list[QueuedWrite]":
        """Return itself: the statements of one caller belong together."""
        return [self]

    def undo(self) -> None:
        """Do nothing: there is no state outside the database."""

    def settle(self) -> None:
        """Resolve the future: the write is durable."""
        if not self.future.done():
            self.future.set_result(self.counts)

    def fail(self, failure: Callable[[], Exception]) -> None:
        """Fail the future: the write was rolled back."""
        if not self.future.done():
            self.future.set_exception(failure())


class Fence(NamedTuple):
    """The condition for rows of a shared database: this crib still has its run, and the session its epoch.

    The statement that adds the rows checks it. `crib` and `run` are a row of `audit_runs`.
    """

    crib: str
    run: str
    session: str | None = None
    epoch: int = 0


class Append:
    """Consecutive items of one log; each caller receives the number of its row.

    Each item has a function that is called if it could not be appended, whether or not its future was cancelled.
    """

    __slots__ = ("fence", "futures", "items", "log", "made", "on_failure", "start")

    def __init__(
        self,
        log: Log[Any],
        items: list[Any],
        futures: "list[asyncio.Future[int]]",
        on_failure: list[OnFailure | None],
        fence: Fence | None = None,
    ) -> None:
        self.log = log
        self.fence = fence
        self.items = items
        self.futures = futures
        self.on_failure = on_failure
        self.made: list[Row] | None = None
        self.start: Any = None

    @property
    def callers(self) -> int:
        """The number of waiting callers."""
        return len(self.futures)

    def parts(self) -> "list[Append]":
        """Return one request per item."""
        each = zip(self.items, self.futures, self.on_failure, strict=True)
        return [Append(self.log, [item], [future], [failed], self.fence) for item, future, failed in each]

    def rows(self) -> list[Row]:
        """Build the rows, remembering the previous head of the log."""
        if self.made is None:
            self.start = self.log.head
            self.made = self.log.rows(self.items)
        return self.made

    def undo(self) -> None:
        """Restore the previous head of the log."""
        if self.start is not None:
            self.log.head, self.start, self.made = self.start, None, None

    def settle(self) -> None:
        """Resolve the futures: the rows are durable."""
        self.log.committed()
        for future, row in zip(self.futures, self.made or (), strict=True):
            if not future.done():
                future.set_result(row[0])

    def fail(self, failure: Callable[[], Exception]) -> None:
        """Fail the futures: the rows were rolled back."""
        for future, failed in zip(self.futures, self.on_failure, strict=True):
            error = failure()
            if not future.done():
                future.set_exception(error)
            if failed is not None:
                failed(error)


Request: TypeAlias = QueuedWrite | Append


class Queue(ABC):
    """Requests for the next transaction. Belongs to one event loop and must only be used on it."""

    shared: ClassVar[bool]
    """Whether other cribs may write to the same database."""
    policy_epoch = 0
    """The epoch of the permissions that the last insert into a log saw; 0 if no other crib can change them."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.loop = asyncio.get_running_loop()
        self.waiting: list[Request] = []
        self.closed = False

    def side_connection(self) -> "SideConnection":
        """Return one more connection to a shared database."""
        raise NotImplementedError

    def connection_parameters(self) -> Mapping[str, Any]:
        """Return the parameters of connections to a shared database."""
        return {}

    @abstractmethod
    def wake(self) -> None:
        """Schedule the queue, which is no longer empty, to be taken after this turn of the loop."""

    def append(
        self, log: Log[Item], item: Item, fence: Fence | None = None, on_failure: OnFailure | None = None
    ) -> "asyncio.Future[int]":
        """Append an item to a log; the future resolves to the number of its row once that is durable."""
        future: asyncio.Future[int] = self.loop.create_future()
        last = self.waiting[-1] if self.waiting else None
        if isinstance(last, Append) and last.log is log and last.fence == fence:
            last.items.append(item)
            last.futures.append(future)
            last.on_failure.append(on_failure)
        else:
            self._add(Append(log, [item], [future], [on_failure], fence))
        return future

    def append_now(self, log: Log[Any], item: Any) -> int | None:
        """Append an item if it can be made durable immediately; return the number of its row.

        Returns None, and appends nothing, if the caller has to wait.
        """
        return None

    def catch_up(self) -> bool:
        """Flush the journal to the database; return False if that cannot be done immediately."""
        return True

    def journalled(self) -> list[bytes]:
        """Return the lines left in a journal; empty without a journal."""
        return []

    def journal_found(self) -> str | None:
        """Return the id of the journal that was left; None without one."""
        return None

    @property
    def has_journal(self) -> bool:
        """Whether a journal is read, used or not."""
        return False

    def forget_journal(self) -> bool:
        """Mark the id of the journal as no longer referenced; return False without a journal."""
        return False

    def journal(self, log: Journalled[Any] | None, id: str) -> bool:
        """Start a journal of this id for this log's rows, or stop using it; return False without a journal."""
        return False

    def write(self, statements: Iterable[Statement]) -> "asyncio.Future[tuple[int, ...]]":
        """Run statements; the future resolves to the number of rows each affected once all are durable."""
        future: asyncio.Future[tuple[int, ...]] = self.loop.create_future()
        self._add(QueuedWrite([prepare(statement, self.dialect) for statement in statements], future))
        return future

    def _add(self, request: Request) -> None:
        if self.closed:
            request.fail(lambda: Unavailable("crib.closed", "The database is closed."))
            return
        self.waiting.append(request)
        if len(self.waiting) == 1:
            self.wake()

    def take(self) -> list[Request]:
        """Remove and return all requests in order."""
        batch, self.waiting = self.waiting, []
        return batch


class Apart:
    """A batch on its second try, request by request: committed ones, and refused ones with their errors."""

    def __init__(self, batch: Sequence[Request]) -> None:
        self._left = deque(batch)
        self.kept: list[Request] = []
        self.refused: list[tuple[Request, Exception]] = []

    def __iter__(self) -> Iterator[Request]:
        """Yield the requests in order. A refused request comes again in parts, if it has any."""
        while self._left:
            yield self._left.popleft()

    def refuse(self, request: Request, error: Exception) -> None:
        """Record that the savepoint of this request was rolled back."""
        request.undo()
        parts = request.parts()
        if len(parts) > 1:
            self._left.extendleft(reversed(parts))
        else:
            self.refused.append((request, error))

    def settle(self, constraint: type[Exception]) -> None:
        """Resolve all futures; an error of the type `constraint` becomes a `ConstraintError`."""
        settle(self.kept)
        for request, error in self.refused:
            request.fail(partial(_reason, error, constraint))


def _reason(error: Exception, constraint: type[Exception]) -> Exception:
    return ConstraintError(str(error)) if isinstance(error, constraint) else error


def undo(batch: Sequence[Request]) -> None:
    """Restore the head of every log to before this batch."""
    for request in reversed(batch):
        request.undo()


def settle(batch: Iterable[Request]) -> None:
    """Resolve the futures of all requests."""
    for request in batch:
        request.settle()


def fail(batch: Iterable[Request], failure: Callable[[], Exception]) -> None:
    """Fail the futures of all requests, each with its own exception."""
    for request in batch:
        request.fail(failure)


def insert_into(table: Table, dialect: Dialect) -> str:
    """Return the insert of whole rows with one placeholder per column."""
    return str(insert(table).compile(dialect=dialect))
