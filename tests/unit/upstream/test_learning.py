"""Accesses recorded from the output of a tracer, and the proposed sandbox."""

from pathlib import Path

import pytest

from toolcrib.base.masking.text import mask_text
from toolcrib.model.sandbox import SandboxGrants
from toolcrib.upstream.learning import AccessRecorder, LearnedAccess

PROJECT = SandboxGrants(read=("/usr",), write=("/home/u/project", "/private"))
STRICT = SandboxGrants(read=("/usr", "/home/u/project"), write=("/private",), network="none")


def record_accesses(*lines: str, pieces: int | None = None) -> LearnedAccess:
    """Return what is learned from lines of the tracer, received in pieces of this many bytes."""
    recorder = AccessRecorder(mask_text)
    recorder.begin((PROJECT, STRICT), "/home/u", "/home/u/project", 4000)
    data = "".join(f"{line}\n" for line in lines).encode()
    for start in range(0, len(data), pieces or len(data) or 1):
        recorder.feed(data[start : start + (pieces or len(data))])
    return recorder.result()


def open_call(path: str, flags: str = "O_RDONLY", result: str | None = None) -> str:
    """Return the line of an open file."""
    return f'7  openat(AT_FDCWD</home/u/project>, "{path}", {flags}) = 3<{result or path}>'


@pytest.mark.parametrize("pieces", [None, 1, 7])
def test_files_outside_the_profile_are_grouped_and_others_left_out(pieces: int | None, tmp_path: Path) -> None:
    for name in ("a", "b", "c", "only"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").touch()
    shared = [open_call(str(tmp_path / "a" / f"f{number}")) for number in range(3)]
    single = open_call(str(tmp_path / "only" / "file"), "O_RDONLY|O_CLOEXEC")
    inside = [open_call("/usr/lib/x"), open_call("/home/u/project/y"), open_call("/private/t", "O_RDWR|O_CREAT")]
    learned = record_accesses(*shared, single, *inside, pieces=pieces)
    assert (learned.read, learned.write) == ((str(tmp_path / "a"), str(tmp_path / "only" / "file")), ())
    assert (learned.profile, learned.calls) == ("strict", 7)


def test_writing_the_project_needs_the_project_profile() -> None:
    assert record_accesses(open_call("x", "O_WRONLY|O_CREAT", "/home/u/project/x")).profile == "project"
    assert record_accesses('7  unlink("x") = 0').profile == "project"


def test_failed_and_unfinished_calls_are_parsed(tmp_path: Path) -> None:
    (tmp_path / "f").touch()
    learned = record_accesses(
        f'7  openat(AT_FDCWD</x>, "{tmp_path}/missing", O_RDONLY) = -1 ENOENT (No such file or directory)',
        f'7  openat(AT_FDCWD</x>, "{tmp_path}/f", O_WRONLY <unfinished ...>',
        "8  +++ exited with 0 +++",
        f"7  <... openat resumed>) = 3<{tmp_path}/f>",
        "9  <... openat resumed>) = 3</somewhere>",
        "garbage",
        "7  openat(" * 10_000,
    )
    assert (learned.read, learned.write) == (("/somewhere",), (f"{tmp_path}/f",))


def test_file_names_cannot_be_mistaken_for_flags_or_results(tmp_path: Path) -> None:
    odd = tmp_path / "a, O_RDWR) = 3<x>"
    odd.touch()
    learned = record_accesses(open_call(str(odd), result=str(odd).replace("<", "\\74").replace(">", "\\76")))
    assert (learned.read, learned.write) == ((str(odd),), ())


def test_names_that_cannot_be_shown_are_counted() -> None:
    learned = record_accesses(
        open_call("/srv/\\33[31m"),
        open_call("/srv/a\\nb"),
        open_call("/srv/\\342\\200\\256x"),
        open_call("/srv/ghp_" + "a1B2" * 9),
    )
    assert (learned.read, learned.left_out) == ((), 4)


def test_recorded_accesses_are_limited() -> None:
    learned = record_accesses(*(open_call(f"/srv/{number}/f") for number in range(2_500)))
    assert (len(learned.read), learned.left_out) == (2_000, 500)


@pytest.mark.parametrize(
    "path", ["/home/u/.ssh/config", "/home/u/.aws/x", "/srv/app/.env", "/srv/server.pem", "/srv/api_token.txt"]
)
def test_credentials_are_listed_and_never_proposed(path: str) -> None:
    folder = path.rpartition("/")[0]
    learned = record_accesses(
        *(open_call(f"{folder}/{name}") for name in ("one", "two")), open_call(path), open_call("/x/y", "O_RDWR")
    )
    assert path in learned.credentials
    assert not any(path == each or path.startswith(f"{each}/") for each in (*learned.read, *learned.write))


def test_listed_directory_that_contains_the_home_or_a_credential_is_not_proposed() -> None:
    listed = (open_call(path, "O_RDONLY|O_DIRECTORY") for path in ("/home/u", "/home", "/home/u/keys", "/home/u/notes"))
    learned = record_accesses(*listed, open_call("/home/u/keys/a.pem"), open_call("/home/u/notes/a"))
    assert learned.read == ("/home/u/notes",)


def test_connections_that_bypass_the_proxy_prevent_a_list_of_hosts() -> None:
    proxy = '7  connect(3<TCP:[1]>, {sa_family=AF_INET, sin_port=htons(4000), sin_addr=inet_addr("127.0.0.1")}, 16) = 0'
    assert record_accesses(proxy).direct == ()
    address = '{sa_family=AF_INET, sin_port=htons(443), sin_addr=inet_addr("192.0.2.1")}'
    direct = f"7  connect(3<TCP:[1]>, {address}, 16) = -1 EINPROGRESS (Operation now in progress)"
    names = '7  connect(3<UDP:[1]>, {sa_family=AF_INET, sin_port=htons(53), sin_addr=inet_addr("192.0.2.1")}, 16) = 0'
    local = '7  connect(3<UNIX-STREAM:[1]>, {sa_family=AF_UNIX, sun_path="/run/bus"}, 16) = 0'
    learned = record_accesses(direct, names, local)
    assert (learned.direct, learned.sockets, learned.profile) == (("192.0.2.1:443",), ("/run/bus",), "project")
    assert learned.to_json()["proposal"]["hosts"] == []
