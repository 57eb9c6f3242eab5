"""The queue in front of the one writer: what was asked for since the last transaction, and who waits for it.

All requests of one batch share one transaction. It is tried as a whole first; if a request is at fault, it is tried
again with every request in a savepoint of its own (`Apart`), so that a fault reaches only those who asked for it.

Above: `Store` is the way in. Below: `sqlite` and `postgres` take the batches and commit them. It must never drop a
request because its caller went away: an outcome is recorded whether or not somebody still waits for it.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import Any, ClassVar, Generic, NamedTuple, TypeAlias, TypeVar

from sqlalchemy import Delete, Dialect, Insert, Select, Table, Update, insert
from sqlalchemy.sql.compiler import ExpandedState, SQLCompiler

from toolcrib.errors import Unavailable
from toolcrib.store.schema import Text, stored_text

logger = logging.getLogger(__name__)

Item = TypeVar("Item")
Row: TypeAlias = tuple[Any, ...]
Parameters: TypeAlias = Mapping[str, Any]
Converters: TypeAlias = Mapping[str, Callable[[Any], Any]]


class ConstraintError(Exception):
    """A write broke a constraint of its table and nothing of it was kept.

    Modules of aggregates turn it into their own `Conflict`; it means nothing outside.
    """


class Log(ABC, Generic[Item]):
    """An append-only table whose rows are made when they are committed, in the order they are committed.

    `head` is what the next row is made from. The writer puts it back when rows were made but not kept.
    """

    table: Table
    head: Any

    @abstractmethod
    def rows(self, items: Sequence[Item]) -> list[Row]:
        """One row for each item, in the order of the table's columns, its number first; moves `head` on."""

    @abstractmethod
    def tail(self) -> "Select[*tuple[Any, ...]]":
        """What `resume` needs to read."""

    @abstractmethod
    def resume(self, rows: Sequence[Row]) -> None:
        """Set `head` from the database: another process has written, or a commit went through unheard."""

    @abstractmethod
    def committed(self) -> None:
        """`head` is in the database. Called after every commit; must not raise."""


class Journalled(Log[Item]):
    """A log whose rows can be written as lines, and made from them again after a crash."""

    @abstractmethod
    def line(self, row: Row) -> bytes:
        """The row as one line, without a line feed."""


@dataclass(frozen=True, slots=True)
class Many:
    """One statement for each of these rows, of which there is at least one; every row gives all parameters."""

    statement: Insert | Update | Delete
    rows: Sequence[Parameters]


Statement: TypeAlias = Insert | Update | Delete | Many


class Prepared(NamedTuple):
    """SQL of one engine and its parameters: one set, or many."""

    sql: str
    parameters: Parameters | list[Parameters]


def prepare(statement: Statement | Select[*tuple[Any, ...]], dialect: Dialect) -> Prepared:
    """Compile a statement for an engine, its values converted as the types of their columns want it."""
    if isinstance(statement, Many):
        sql, convert = _prepared(statement.statement, dialect, tuple(statement.rows[0]))
        return Prepared(sql, [_converted(row, convert) for row in statement.rows])
    compiled = statement.compile(dialect=dialect)
    state = compiled.construct_expanded_state()
    return Prepared(state.statement, _converted(state.parameters, _converters(compiled, dialect, state)))


@lru_cache(maxsize=64)
def _prepared(statement: Insert | Update | Delete, dialect: Dialect, names: tuple[str, ...]) -> tuple[str, Converters]:
    """SQL for any rows with these names; made once for a statement that is kept, for it takes longer than to write."""
    compiled = statement.compile(dialect=dialect, column_keys=list(names))
    state = compiled.construct_expanded_state(dict.fromkeys(names))
    return state.statement, _converters(compiled, dialect, state)


def _converters(compiled: SQLCompiler, dialect: Dialect, state: ExpandedState) -> Converters:
    found = ((name, bind.type.dialect_impl(dialect).bind_processor(dialect)) for name, bind in compiled.binds.items())
    usual = {name: processor for name, processor in found if processor is not None} | dict(state.processors)
    texts = {
        name: stored_text for name, bind in compiled.binds.items() if name in usual and isinstance(bind.type, Text)
    }
    return usual | texts  # nearly all values are texts, and what SQLAlchemy wraps around the same costs more than it


def _converted(parameters: Parameters, convert: Converters) -> Parameters:
    return {name: convert[name](value) if name in convert else value for name, value in parameters.items()}


class Write:
    """Statements of one caller, who learns how many rows each of them touched."""

    __slots__ = ("counts", "future", "statements")
    callers = 1

    def __init__(self, statements: Sequence[Prepared], future: "asyncio.Future[tuple[int, ...]]") -> None:
        self.statements = statements
        self.future = future
        self.counts: tuple[int, ...] = ()

    def parts(self) -> "list[Write]":
        """Statements of one caller belong together."""
        return [self]

    def undo(self) -> None:
        """Nothing is kept outside the database."""

    def settle(self) -> None:
        """Tell the caller that it is durable."""
        if not self.future.done():
            self.future.set_result(self.counts)

    def fail(self, failure: Callable[[], Exception]) -> None:
        """Tell the caller that nothing of it was kept."""
        if not self.future.done():
            self.future.set_exception(failure())


class Append:
    """Consecutive items of one log, each with a caller who learns the number of its row."""

    __slots__ = ("futures", "items", "log", "made", "start")

    def __init__(self, log: Log[Any], items: list[Any], futures: "list[asyncio.Future[int]]") -> None:
        self.log = log
        self.items = items
        self.futures = futures
        self.made: list[Row] | None = None
        self.start: Any = None

    @property
    def callers(self) -> int:
        """How many wait for it."""
        return len(self.futures)

    def parts(self) -> "list[Append]":
        """The same, each item by itself."""
        return [Append(self.log, [item], [future]) for item, future in zip(self.items, self.futures, strict=True)]

    def rows(self) -> list[Row]:
        """Make the rows, remembering where the log stood."""
        if self.made is None:
            self.start = self.log.head
            self.made = self.log.rows(self.items)
        return self.made

    def undo(self) -> None:
        """Put the log back to where it stood."""
        if self.start is not None:
            self.log.head, self.start, self.made = self.start, None, None

    def settle(self) -> None:
        """Tell the callers that it is durable."""
        self.log.committed()
        for future, row in zip(self.futures, self.made or (), strict=True):
            if not future.done():
                future.set_result(row[0])

    def fail(self, failure: Callable[[], Exception]) -> None:
        """Tell the callers that nothing of it was kept."""
        for future in self.futures:
            if not future.done():
                future.set_exception(failure())


class Held(Append):
    """Items whose rows are durable already outside the table: nobody waits for them to come into it, but they must."""

    __slots__ = ()

    def __init__(self, log: Log[Any], items: list[Any]) -> None:
        super().__init__(log, items, [])

    def add(self, item: Any, row: Row) -> None:
        """One more, with the row that was made for it. The rows of those before it have been made."""
        self.items.append(item)
        self.rows().append(row)

    def parts(self) -> "list[Append]":
        """The same, each item by itself."""
        return [Held(self.log, [item]) for item in self.items]

    def settle(self) -> None:
        """They are in the table, maybe with other numbers than they had outside it."""
        self.log.committed()

    def fail(self, failure: Callable[[], Exception]) -> None:
        """The table does not take them, whatever is tried, and nobody waits who could be told."""
        logger.error("%d rows were lost: %s", len(self.items), failure())


Request: TypeAlias = Write | Append


class Queue(ABC):
    """What waits for the next transaction. Belongs to one event loop and is used on it only."""

    shared: ClassVar[bool]
    """Whether other cribs may write to the same database."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.loop = asyncio.get_running_loop()
        self.waiting: list[Request] = []
        self.closed = False

    @abstractmethod
    def wake(self) -> None:
        """The queue is no longer empty: take it when this turn of the loop is over."""

    def append(self, log: Log[Item], item: Item) -> "asyncio.Future[int]":
        """Add one item to a log. The future gives the number of its row once that is durable."""
        future: asyncio.Future[int] = self.loop.create_future()
        last = self.waiting[-1] if self.waiting else None
        if isinstance(last, Append) and last.log is log:
            last.items.append(item)
            last.futures.append(future)
        else:
            self._add(Append(log, [item], [future]))
        return future

    def append_now(self, log: Log[Any], item: Any) -> int | None:
        """Add one item to a log if that can be made durable at once; gives the number of its row.

        None where it has to be waited for: then nothing was added.
        """
        return None

    def catch_up(self) -> bool:
        """Bring what is ahead into the database; false if that cannot be done at once."""
        return True

    def journalled(self) -> list[bytes]:
        """The lines a journal was left with; none where there is no journal."""
        return []

    def journal(self, log: Journalled[Any] | None) -> bool:
        """Use the journal for the rows of this log, or for none from now on; false where there is no journal."""
        return False

    def write(self, statements: Iterable[Statement]) -> "asyncio.Future[tuple[int, ...]]":
        """Run statements. The future gives the number of rows each touched once all of them are durable."""
        future: asyncio.Future[tuple[int, ...]] = self.loop.create_future()
        self._add(Write([prepare(statement, self.dialect) for statement in statements], future))
        return future

    def _add(self, request: Request) -> None:
        if self.closed:
            request.fail(lambda: Unavailable("crib.closed", "The database is closed."))
            return
        self.waiting.append(request)
        if len(self.waiting) == 1:
            self.wake()

    def take(self) -> list[Request]:
        """All that waits, in order; the queue is empty afterwards."""
        batch, self.waiting = self.waiting, []
        return batch


class Apart:
    """A batch on its second try, request by request: which were kept, which were refused and why."""

    def __init__(self, batch: Sequence[Request]) -> None:
        self._left = deque(batch)
        self.kept: list[Request] = []
        self.refused: list[tuple[Request, Exception]] = []

    def __iter__(self) -> Iterator[Request]:
        """The requests in order. One that is refused comes again in parts, if it has any."""
        while self._left:
            yield self._left.popleft()

    def refuse(self, request: Request, error: Exception) -> None:
        """The savepoint of this request was rolled back."""
        request.undo()
        parts = request.parts()
        if len(parts) > 1:
            self._left.extendleft(reversed(parts))
        else:
            self.refused.append((request, error))

    def settle(self, constraint: type[Exception]) -> None:
        """Tell everybody; an error of the type `constraint` is a broken constraint."""
        settle(self.kept)
        for request, error in self.refused:
            request.fail(partial(_reason, error, constraint))


def _reason(error: Exception, constraint: type[Exception]) -> Exception:
    return ConstraintError(str(error)) if isinstance(error, constraint) else error


def undo(batch: Sequence[Request]) -> None:
    """Put every log back to where it stood before this batch."""
    for request in reversed(batch):
        request.undo()


def settle(batch: Iterable[Request]) -> None:
    """Tell everybody that it is durable."""
    for request in batch:
        request.settle()


def fail(batch: Iterable[Request], failure: Callable[[], Exception]) -> None:
    """Tell everybody that nothing was kept, each with an exception of their own."""
    for request in batch:
        request.fail(failure)


def insert_into(table: Table, dialect: Dialect) -> str:
    """The insert of whole rows, one mark for each column in order; made once for each log."""
    return str(insert(table).compile(dialect=dialect))
