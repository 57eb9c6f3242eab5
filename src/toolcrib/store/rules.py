"""Rules that are not in a file, as stored in the database. `toolcrib.gate.policy` defines their meaning."""

from datetime import UTC, datetime
from typing import Any

from sqlalchemy import Row, delete, insert, select, update

from toolcrib.model.errors import Conflict
from toolcrib.model.json import JsonObject, dumps, loads
from toolcrib.model.policy import Binding, Condition, Rule, RuleOrigin, Where
from toolcrib.store.audit import moment
from toolcrib.store.batch import ConstraintError
from toolcrib.store.engine import Store
from toolcrib.store.schema import rules


async def load_rules(store: Store) -> list[Rule]:
    """Return all rules, including expired ones, oldest first."""
    query = select(rules).order_by(rules.c.created_at, rules.c.id)
    return [_rule(row) for row in await store.read(lambda connection: connection.execute(query).all())]


async def save_rule(store: Store, rule: Rule) -> None:
    """Add a rule. Raises `Conflict` (`rule.exists`) if its id is taken."""
    try:
        await store.write(insert(rules).values(**_columns(rule)))
    except ConstraintError as error:
        raise Conflict("rule.exists", f"Rule {rule.id} already exists.") from error


async def replace_rule(store: Store, rule: Rule) -> bool:
    """Replace a rule; return False if its id does not exist."""
    (changed,) = await store.write(update(rules).where(rules.c.id == rule.id).values(**_columns(rule)))
    return changed == 1


async def delete_rule(store: Store, id: str) -> bool:
    """Delete a rule; return False if its id does not exist."""
    (gone,) = await store.write(delete(rules).where(rules.c.id == id))
    return gone == 1


async def spend_rule(store: Store, id: str) -> bool:
    """Count a call against a limited rule. Returns False if none is left, in one statement for all processes."""
    left = update(rules).where(rules.c.id == id, rules.c.uses > 0)
    (counted,) = await store.write(left.values(uses=rules.c.uses - 1))
    return counted == 1


def _columns(rule: Rule) -> JsonObject:
    return {
        "id": rule.id,
        "effect": rule.effect,
        "pattern": rule.pattern,
        "origin": rule.origin.kind,
        "reason": rule.reason,
        "created_by": rule.created_by,
        "created_at": None if rule.created_at is None else moment(rule.created_at),
        "expires_at": None if rule.expires_at is None else moment(rule.expires_at),
        "definition_hash": rule.definition_hash,
        "session": rule.session,
        "conditions": dumps([condition.to_json() for condition in rule.conditions]),
        "applies": dumps(rule.where.to_json()),
        "principal": None if rule.principal is None else dumps(rule.principal.to_json()).decode(),
        "uses": rule.uses,
    }


def _rule(row: Row[*tuple[Any, ...]]) -> Rule:
    return Rule(
        id=row.id,
        effect=row.effect,
        pattern=row.pattern,
        origin=RuleOrigin(row.origin),
        reason=row.reason,
        created_by=row.created_by,
        created_at=_time(row.created_at),
        expires_at=_time(row.expires_at),
        conditions=tuple(Condition(**condition) for condition in loads(row.conditions)),
        where=_where(loads(row.applies)),
        definition_hash=row.definition_hash,
        session=row.session,
        principal=None if row.principal is None else Binding.of_json(loads(row.principal)),
        uses=row.uses,
    )


def _where(shape: JsonObject) -> Where:
    lists = {key: tuple(shape.get(key, ())) for key in ("sources", "agents", "projects", "modes", "marks", "flows")}
    marks = shape.get("readOnly"), shape.get("destructive"), shape.get("openWorld")
    return Where(*marks, **lists, excepted=tuple(shape.get("except", ())))


def _time(text: str | None) -> datetime | None:
    return None if text is None else datetime.fromisoformat(text).astimezone(UTC)
