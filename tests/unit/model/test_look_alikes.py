"""Names that can be confused have the same look; ordinary names in other languages are unaffected."""

import pytest

from toolcrib.model.look_alikes import look, looks_foreign, twins


@pytest.mark.parametrize(
    "name",
    [
        "Read_File", "READ_FILE", "read-file", "read.file", "readFile", "readfile", "read__file", "read_fi1e",
        "read_fiIe", "read_flle", "r\u0435ad_file", "re\u0430d_file", "read_fil\u212f", "\uff52ead_file",
        "read_\ufb01le", "read_file\u200b", "read_file ", "re\u0301ad_file", "\U0001d5cbead_file", "read\u2010file",
        "read\ufe4dfile", "read_f\u0456le", "read\u00a0file",
    ],
)  # fmt: skip
def test_look_alikes_of_read_file_have_its_look(name: str) -> None:
    assert look(name) == look("read_file")


@pytest.mark.parametrize("name", ["read_files", "write_file", "read_file_2", "head_file", "read", "\u65e5\u672c"])
def test_other_names_have_another_look(name: str) -> None:
    assert look(name) != look("read_file")


@pytest.mark.parametrize("name", ["r\u0435ad", "\uff52\uff45\uff41\uff44", "\ufb01le", "\u0455\u0435\u0441"])
def test_disguised_letters_are_detected_in_a_single_name(name: str) -> None:
    assert looks_foreign(name)


@pytest.mark.parametrize(
    "name", ["café", "prévision", "日本", "поиск_файла", "αναζήτηση", "über-tool", "read_file", "naïve"]
)
def test_names_in_other_languages_are_not_disguised(name: str) -> None:
    assert not looks_foreign(name)


def test_twins_list_each_other() -> None:
    assert twins(["read_file", "read-file", "write", "..", "."]) == {
        "read_file": ("read-file",),
        "read-file": ("read_file",),
    }
