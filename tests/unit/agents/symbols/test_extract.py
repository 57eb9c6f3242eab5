"""Symbols of one source file in every language, the lines of its names, and what is found in broken code."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.agents.symbols.entries import KINDS, Symbol, of_wire, to_wire
from toolcrib.agents.symbols.extract import LONGEST_NAME, LONGEST_SIGNATURE, read_source
from toolcrib.agents.symbols.languages import LANGUAGES, language_of, missing_parts

PYTHON = """\
import os
LIMIT = 3
name: str = "x"
type Pair = tuple[int, int]
class Outer(Base):
    SIZE = 1
    field: int
    class Inner:
        def deep(self): ...
    async def go(
        self, a: int,
    ) -> str:
        def helper(): return os
        return helper()
def free(x): return Outer().go(x)
"""
TYPESCRIPT = """\
export interface Shape { area(): number; side: number }
export type Id = string;
export enum Color { Red, Green = 2 }
export abstract class Base<T> { private x = 1; #secret = 2; abstract run(): void; get size() { return 1 } }
export const LIMIT = 4;
export const add = (a: number, b: number): number => { return a + b };
let counter = 0;
namespace Space { export function inside() {} }
export default function main() {}
"""
TSX = """\
export const App = () => <div onClick={go}>{text}</div>;
export class View extends React.Component { render() { return <b/> } }
"""
JAVASCRIPT = """\
class A { #p = 1; m() {} static s = 2 }
function f() {}
function* gen() {}
const g = function () {}, K = 1;
module.exports.h = () => 1;
const o = { k: () => 2 };
var v = 1;
"""
GO = """\
package main
const Pi, Tau = 3, 6
var a, b = 1, 2
type S struct { Name string; x, y int }
type I interface { Run(n int) error }
type Num int
type G[T any] struct { v T }
func (s *S) Do(x int) error { return nil }
func (g G[T]) Get() T { return g.v }
func main() { s := S{}; s.Do(1) }
"""
RUST = """\
mod m { pub fn inner() {} }
pub struct P { pub x: i32 }
enum E { A, B(i32) }
trait T { fn t(&self); }
impl T for P { fn t(&self) {} }
impl<X> Vec2<X> { const C: i32 = 1; pub fn new() -> Self { todo!() } }
type Al = P;
static S: i32 = 1;
macro_rules! mac { () => {} }
fn main() { mac!(); }
"""
JAVA = """\
public class A<T> extends B {
  static final int MAX = 1;
  private String name;
  A() {}
  public <R> R run(int x) throws E { return null; }
  enum Day { MON, TUE }
  interface Q { void q(); }
  record Pt(int x) {}
}
"""
C = """\
#define LIMIT 3
#define SQ(x) ((x)*(x))
typedef struct node { int v; struct node *next; } node_t;
enum color { RED, GREEN };
static int counter = 0;
int add(int a, int b);
char *name(void) { return 0; }
"""
CPP = """\
namespace ns { class A { public: A(); ~A(); int get() const { return x_; } private: int x_; }; }
ns::A::A() {}
int ns::A::get2() const { return 1; }
template <typename T> class Box { T v; };
using Al = ns::A;
"""
EXPECTED = {
    "python": (PYTHON, [
        "2 constant LIMIT", "3 variable name", "4 type Pair", "5 class Outer", "6 constant Outer.SIZE",
        "7 field Outer.field", "8 class Outer.Inner", "9 method Outer.Inner.deep", "10 method Outer.go",
        "13 function Outer.go.helper", "15 function free",
    ]),
    "typescript": (TYPESCRIPT, [
        "1 interface Shape", "1 method Shape.area", "1 field Shape.side", "2 type Id", "3 enum Color",
        "3 constant Color.Red", "3 constant Color.Green", "4 class Base", "4 field Base.x", "4 field Base.#secret",
        "4 method Base.run", "4 method Base.size", "5 constant LIMIT", "6 function add", "7 variable counter",
        "8 module Space", "8 function Space.inside", "9 function main",
    ]),
    "tsx": (TSX, ["1 function App", "2 class View", "2 method View.render"]),
    "javascript": (JAVASCRIPT, [
        "1 class A", "1 field A.#p", "1 method A.m", "1 field A.s", "2 function f", "3 function gen", "4 function g",
        "4 constant K", "5 function h", "6 constant o", "6 function o.k", "7 variable v",
    ]),
    "go": (GO, [
        "2 constant Pi", "2 constant Tau", "3 variable a", "3 variable b", "4 struct S", "4 field S.Name",
        "4 field S.x", "4 field S.y", "5 interface I", "5 method I.Run", "6 type Num", "7 struct G", "7 field G.v",
        "8 method S.Do", "9 method G.Get", "10 function main",
    ]),
    "rust": (RUST, [
        "1 module m", "1 function m.inner", "2 struct P", "2 field P.x", "3 enum E", "3 constant E.A", "3 constant E.B",
        "4 trait T", "4 method T.t", "5 method P.t", "6 constant Vec2.C", "6 method Vec2.new", "7 type Al",
        "8 constant S", "9 macro mac", "10 function main",
    ]),
    "java": (JAVA, [
        "1 class A", "2 constant A.MAX", "3 field A.name", "4 method A.A", "5 method A.run", "6 enum A.Day",
        "6 constant A.Day.MON", "6 constant A.Day.TUE", "7 interface A.Q", "7 method A.Q.q", "8 class A.Pt",
    ]),
    "c": (C, [
        "1 macro LIMIT", "2 macro SQ", "3 type node_t", "3 struct node", "3 field node.v", "3 field node.next",
        "4 enum color", "4 constant color.RED", "4 constant color.GREEN", "5 variable counter", "6 function add",
        "7 function name",
    ]),
    "cpp": (CPP, [
        "1 module ns", "1 class ns.A", "1 method ns.A.A", "1 method ns.A.~A", "1 method ns.A.get", "1 field ns.A.x_",
        "2 method ns.A.A", "3 method ns.A.get2", "4 class Box", "4 field Box.v", "5 type Al",
    ]),
}  # fmt: skip


def summaries(symbols: Sequence[Symbol]) -> list[str]:
    """Return each symbol as one line."""
    return [f"{each.line} {each.kind} {f'{each.container}.' if each.container else ''}{each.name}" for each in symbols]


def test_every_language_is_installed_and_has_an_example() -> None:
    assert missing_parts() == ()
    assert EXPECTED.keys() == LANGUAGES.keys()


@pytest.mark.parametrize("language", LANGUAGES)
def test_symbols_have_kind_line_and_container(language: str) -> None:
    text, expected = EXPECTED[language]
    symbols = read_source("file", language, text.encode()).symbols
    assert summaries(symbols) == expected
    assert {each.kind for each in symbols} <= set(KINDS)
    assert {each.file for each in symbols} == {"file"}


@pytest.mark.parametrize(
    ("language", "name", "signature"),
    [
        ("python", "go", "async def go( self, a: int, ) -> str:"),
        ("python", "LIMIT", "LIMIT = 3"),
        ("typescript", "add", "export const add = (a: number, b: number): number =>"),
        ("typescript", "run", "abstract run(): void"),
        ("go", "Do", "func (s *S) Do(x int) error"),
        ("rust", "new", "pub fn new() -> Self"),
        ("java", "run", "public <R> R run(int x) throws E"),
        ("c", "name", "char *name(void)"),
        ("cpp", "get2", "int ns::A::get2() const"),
    ],
)
def test_signature_is_the_text_before_the_body_in_one_line(language: str, name: str, signature: str) -> None:
    symbols = read_source("file", language, EXPECTED[language][0].encode()).symbols
    assert next(each.signature for each in symbols if each.name == name) == signature


def test_names_list_each_line_once_without_comments_and_strings() -> None:
    text = b"a = a + a\n# a\nb = 'a'\n\n\nprint(a, b)\n"
    names = read_source("x.py", "python", text).names
    assert {name: list(lines) for name, lines in names.items()} == {"a": [1, 6], "b": [3, 6], "print": [6]}


def test_symbols_before_broken_code_are_found() -> None:
    text = b"def good(): pass\n\ndef bad(:\n    ((((\n\nclass Late:\n    def method(self): pass\n"
    names = {each.name for each in read_source("x.py", "python", text).symbols}
    assert "good" in names


def test_long_names_and_signatures_are_cut() -> None:
    text = f"def f({', '.join(f'argument_{n}: int' for n in range(500))}): pass\n{'x' * 5_000} = 1\n".encode()
    source = read_source("x.py", "python", text)
    assert [len(each.signature) for each in source.symbols] == [LONGEST_SIGNATURE, LONGEST_SIGNATURE]
    assert all(len(each.name) <= LONGEST_NAME for each in source.symbols)
    assert max(map(len, source.names)) <= LONGEST_NAME


@given(st.binary(max_size=300), st.sampled_from(sorted(LANGUAGES)))
def test_any_bytes_are_parsed_and_survive_the_wire_format(text: bytes, language: str) -> None:
    source = read_source("file", language, text)
    again = of_wire("file", to_wire(source))
    assert (again.digest, again.symbols) == (source.digest, source.symbols)
    assert {name: list(lines) for name, lines in again.names.items()} == source.names
    lines = text.count(b"\n") + 1
    assert all(1 <= line <= lines for numbers in source.names.values() for line in numbers)


@pytest.mark.parametrize(
    ("file", "language"),
    [("a/b.py", "python"), ("x.TSX", "tsx"), ("y.h", "cpp"), ("Makefile", None), ("a.py.txt", None), (".py", None)],
)
def test_language_is_found_by_file_extension(file: str, language: str | None) -> None:
    assert language_of(file) == language
