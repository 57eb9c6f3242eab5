"""An upgrade without downtime: nodes of this version beside the next one, with a larger schema, and the previous one.

The previous version is a wheel of the newest commit before the last migration. From that revision on, every commit must
work beside the one before.

"""

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from cluster.failures import CLIENTS, COUNTER, PlayedCluster
from cluster.load import Load
from cluster.nodes import Cluster, ClusterNode, wait_for
from cluster.test_approvals import Calling, pending
from cluster.test_handles import answer, create_token
from integration.store.databases import fetch_rows
from long_tests import takes_long
from toolcrib.store.schema import HEAD

pytestmark = pytest.mark.anyio
NEXT = {"NEXT_VERSION": "99.0"}


def versions(node: ClusterNode) -> list[str]:
    """Return the versions of the live nodes, as one of them lists them."""
    listed = node.request("GET", "/api/nodes").json()
    return sorted(each["version"] for each in listed if each["state"] != "dead")


@takes_long
async def test_rolling_upgrade_loses_no_call(played: PlayedCluster) -> None:
    nodes = played.start(2)
    old = versions(nodes[0])[0]
    load = Load(nodes, CLIENTS)  # follows the list of nodes as it changes
    with load.running():
        session = played.begin_turn(nodes[0], "hang")
        wait_for(lambda: played.owner(session)[1] == "running")
        [third] = played.start(1, variables=NEXT)
        assert fetch_rows(played.database, "SELECT version_num FROM alembic_version") == [("9999",)]
        assert versions(nodes[1]) == [old, old, "99.0"]
        nodes.append(third)

        first, second = nodes[0], nodes[1]
        drained = third.request("POST", f"/api/nodes/{first.url.partition('://')[2]}/drain")
        assert drained.status_code < 300, drained.text
        assert first.process.wait(60) == 0
        nodes.remove(first)
        wait_for(lambda: played.owner(session)[1] == "running" and played.owner(session)[2] > 1)

        second.kill()  # a node of the older version restarts in the middle of the upgrade
        second = played.relaunch(second)
        nodes[0] = second
        assert versions(third) == [old, "99.0"]
        assert second.call("counter/slow", {"marker": "older", "seconds": 0}).status_code == 200
        assert third.call("counter/slow", {"marker": "newer", "seconds": 0}).status_code == 200

        nodes.remove(second)
        second.stop()
        assert versions(third) == ["99.0"]
        assert third.request("POST", f"/api/sessions/{session}/interrupt").status_code < 300
        wait_for(lambda: played.owner(session)[1] == "idle", 60)
    played.settle()
    assert await played.findings(load) == []


ROOT = Path(__file__).parents[2]
MIGRATIONS = "src/toolcrib/store/migrations/versions"


def git(*arguments: str) -> bytes:
    """Return the output of a git command. Skips the test if the clone has no such history."""
    done = subprocess.run(["git", "-C", str(ROOT), *arguments], capture_output=True, timeout=120)
    if done.returncode != 0 or not done.stdout:
        pytest.skip("needs the history of the repository")
    return done.stdout


def earlier_wheel(folder: Path) -> Path:
    """Build a wheel of the newest commit before the last migration. Returns the folder of its content."""
    migrated = git("log", "-1", "--no-merges", "--diff-filter=A", "--format=%H", "--", MIGRATIONS).decode().strip()
    source, content = folder / "source", folder / "wheel"
    source.mkdir()
    archive = git("archive", f"{migrated}^", "src", "pyproject.toml", "README.md", "LICENSE")
    subprocess.run(["tar", "-x", "-C", str(source)], input=archive, check=True, timeout=120)
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder / "dist")]
    subprocess.run(build, cwd=source, check=True, capture_output=True, timeout=300)
    (wheel,) = (folder / "dist").glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        opened.extractall(content)
    return content


def start(played: PlayedCluster, program: Path | None = None, again: ClusterNode | None = None) -> ClusterNode:
    """Start a node of this version or of the one in a folder, with a new home or that of an earlier node."""
    shell = again.shell if again is not None else played.shell(len(played.nodes))
    (shell.home / "tools").mkdir(parents=True, exist_ok=True)
    counter = COUNTER.format(calls=str(played.folder / "calls"))
    (shell.home / "tools" / "counter.py").write_text(counter, encoding="utf-8")
    node = Cluster.launch(played, shell, variables={} if program is None else {"PYTHONPATH": str(program)})
    played.await_ready(node)
    return node


@takes_long
async def test_node_of_an_earlier_commit_works_beside_this_version(played: PlayedCluster, tmp_path: Path) -> None:
    program = earlier_wheel(tmp_path)
    first = start(played, program)
    [(before,)] = fetch_rows(played.database, "SELECT version_num FROM alembic_version")
    assert before < HEAD, "the earlier version created the schema"
    nodes = [first]
    load = Load(nodes, CLIENTS)
    with load.running():
        second = start(played)
        assert fetch_rows(played.database, "SELECT version_num FROM alembic_version") == [(HEAD,)]
        nodes.append(second)
        for here, there in ((first, second), (second, first)):
            rule = here.request("POST", "/api/policy/rules", {"effect": "deny", "pattern": "toolcrib/ping"}).json()[
                "id"
            ]
            assert there.decided_call("toolcrib/ping", {}).status_code == 403
            assert here.request("DELETE", f"/api/policy/rules/{rule}").status_code == 200
            secret = create_token(here, name=here.shell.home.parent.name, source="api")
            calling = Calling(here, secret)
            (approval,) = wait_for(lambda: pending(there))  # noqa: B023 called within this iteration
            answer(there, approval["id"])
            assert calling.status() == 200
        first.kill()
        nodes[0] = first = start(played, program, again=first)
        for node in nodes:
            wait_for(lambda: node.call("counter/slow", {"marker": "both", "seconds": 0}).status_code == 200)  # noqa: B023 called within this iteration
    played.settle()
    assert await played.findings(load) == []
