"""The supported languages: file extensions, grammars, and the tree-sitter queries for symbols and names.

In a query, `@name` captures a symbol's name and the other capture its node; the latter's label is the kind. `@scope` is
not a symbol, but contributes its name to the container of what it encloses. `@receiver` captures the owner of a method
defined outside it; in C++ the qualified name has the owner. If two patterns match the same name, the earlier one wins.

Must never load a grammar: `extract` does that, in its own process.
"""

import importlib.util
from dataclasses import dataclass
from typing import Final

_JAVASCRIPT_COMMON: Final = """
(function_declaration name: (identifier) @name) @function
(generator_function_declaration name: (identifier) @name) @function
(method_definition name: [(property_identifier) (private_property_identifier)] @name) @method
(variable_declarator name: (identifier) @name
  value: [(arrow_function) (function_expression) (generator_function)]) @function
(pair key: (property_identifier) @name value: [(arrow_function) (function_expression)]) @function
(assignment_expression left: (member_expression property: (property_identifier) @name)
  right: [(arrow_function) (function_expression)]) @function
(program (lexical_declaration kind: "const" (variable_declarator name: (identifier) @name) @constant))
(program (lexical_declaration kind: "let" (variable_declarator name: (identifier) @name) @variable))
(program (variable_declaration (variable_declarator name: (identifier) @name) @variable))
(program (export_statement
  (lexical_declaration kind: "const" (variable_declarator name: (identifier) @name) @constant)))
(program (export_statement
  (lexical_declaration kind: "let" (variable_declarator name: (identifier) @name) @variable)))
"""

_JAVASCRIPT: Final = f"""
(class_declaration name: (identifier) @name) @class
(class name: (identifier) @name) @class
(field_definition property: [(property_identifier) (private_property_identifier)] @name) @field
{_JAVASCRIPT_COMMON}
"""

_TYPESCRIPT: Final = f"""
(class_declaration name: (type_identifier) @name) @class
(abstract_class_declaration name: (type_identifier) @name) @class
(class name: (type_identifier) @name) @class
(interface_declaration name: (type_identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(enum_body name: (property_identifier) @name @constant)
(enum_assignment name: (property_identifier) @name) @constant
(type_alias_declaration name: (type_identifier) @name) @type
(function_signature name: (identifier) @name) @function
(method_signature name: (property_identifier) @name) @method
(abstract_method_signature name: (property_identifier) @name) @method
(public_field_definition name: [(property_identifier) (private_property_identifier)] @name) @field
(property_signature name: (property_identifier) @name) @field
(internal_module name: (identifier) @name) @module
(module name: (identifier) @name) @module
{_JAVASCRIPT_COMMON}
"""

_PYTHON: Final = """
(class_definition name: (identifier) @name) @class
(function_definition name: (identifier) @name) @function
(type_alias_statement left: (type (identifier) @name)) @type
(module (expression_statement (assignment left: (identifier) @name) @variable))
(class_definition body: (block (expression_statement (assignment left: (identifier) @name) @field)))
"""

_GO: Final = """
(function_declaration name: (identifier) @name) @function
(method_declaration receiver: (parameter_list) @receiver name: (field_identifier) @name) @method
(type_spec name: (type_identifier) @name type: (struct_type)) @struct
(type_spec name: (type_identifier) @name type: (interface_type)) @interface
(type_spec name: (type_identifier) @name) @type
(type_alias name: (type_identifier) @name) @type
(method_elem name: (field_identifier) @name) @method
(field_declaration name: (field_identifier) @name) @field
(source_file (const_declaration (const_spec (identifier) @name) @constant))
(source_file (var_declaration (var_spec name: (identifier) @name) @variable))
(source_file (var_declaration (var_spec_list (var_spec name: (identifier) @name) @variable)))
"""

_RUST: Final = """
(function_item name: (identifier) @name) @function
(function_signature_item name: (identifier) @name) @function
(struct_item name: (type_identifier) @name) @struct
(union_item name: (type_identifier) @name) @struct
(enum_item name: (type_identifier) @name) @enum
(enum_variant name: (identifier) @name) @constant
(trait_item name: (type_identifier) @name) @trait
(type_item name: (type_identifier) @name) @type
(mod_item name: (identifier) @name) @module
(const_item name: (identifier) @name) @constant
(static_item name: (identifier) @name) @constant
(macro_definition name: (identifier) @name) @macro
(field_declaration name: (field_identifier) @name) @field
(impl_item type: [
  (type_identifier) @name
  (generic_type type: (type_identifier) @name)
  (scoped_type_identifier name: (type_identifier) @name)
]) @scope
"""

_JAVA: Final = """
(class_declaration name: (identifier) @name) @class
(record_declaration name: (identifier) @name) @class
(interface_declaration name: (identifier) @name) @interface
(annotation_type_declaration name: (identifier) @name) @interface
(enum_declaration name: (identifier) @name) @enum
(enum_constant name: (identifier) @name) @constant
(method_declaration name: (identifier) @name) @method
(constructor_declaration name: (identifier) @name) @method
(field_declaration declarator: (variable_declarator name: (identifier) @name) @field)
"""

_C: Final = """
(function_declarator declarator: (identifier) @name) @function
(struct_specifier name: (type_identifier) @name body: (_)) @struct
(union_specifier name: (type_identifier) @name body: (_)) @struct
(enum_specifier name: (type_identifier) @name body: (_)) @enum
(enumerator name: (identifier) @name) @constant
(type_definition declarator: (type_identifier) @name) @type
(preproc_def name: (identifier) @name) @macro
(preproc_function_def name: (identifier) @name) @macro
(field_declaration declarator: (field_identifier) @name) @field
(field_declaration declarator: (pointer_declarator declarator: (field_identifier) @name)) @field
(translation_unit (declaration declarator: (init_declarator declarator: (identifier) @name)) @variable)
"""

_CPP: Final = f"""
(function_declarator declarator: (qualified_identifier) @name) @method
(function_declarator declarator: [(field_identifier) (destructor_name) (operator_name)] @name) @method
(class_specifier name: (type_identifier) @name body: (_)) @class
(namespace_definition name: (namespace_identifier) @name) @module
(alias_declaration name: (type_identifier) @name) @type
(concept_definition name: (identifier) @name) @type
{_C}
"""


@dataclass(frozen=True, slots=True)
class Speech:
    """One language: its grammar's module and function, its symbol query, and the node types of names."""

    module: str
    symbols: str
    names: tuple[str, ...]
    function: str = "language"


_SCRIPT_NAMES: Final = (
    "identifier",
    "property_identifier",
    "private_property_identifier",
    "shorthand_property_identifier",
    "shorthand_property_identifier_pattern",
)
_TYPED_NAMES: Final = ("identifier", "type_identifier", "field_identifier")

LANGUAGES: Final = {
    "python": Speech("tree_sitter_python", _PYTHON, ("identifier",)),
    "typescript": Speech(
        "tree_sitter_typescript", _TYPESCRIPT, (*_SCRIPT_NAMES, "type_identifier"), "language_typescript"
    ),
    "tsx": Speech("tree_sitter_typescript", _TYPESCRIPT, (*_SCRIPT_NAMES, "type_identifier"), "language_tsx"),
    "javascript": Speech("tree_sitter_javascript", _JAVASCRIPT, _SCRIPT_NAMES),
    "go": Speech("tree_sitter_go", _GO, (*_TYPED_NAMES, "package_identifier")),
    "rust": Speech("tree_sitter_rust", _RUST, (*_TYPED_NAMES, "shorthand_field_identifier")),
    "java": Speech("tree_sitter_java", _JAVA, ("identifier", "type_identifier")),
    "c": Speech("tree_sitter_c", _C, _TYPED_NAMES),
    "cpp": Speech("tree_sitter_cpp", _CPP, (*_TYPED_NAMES, "namespace_identifier")),
}
_ENDINGS: Final = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
    ".tsx": "tsx",
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), "javascript"),
    ".go": "go",
    ".rs": "rust",
    ".java": "java",
    ".c": "c",
    # A header may be C or C++; the C++ grammar parses nearly all of C.
    **dict.fromkeys((".h", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"), "cpp"),
}


def language_of(file: str) -> str | None:
    """Return the language of a file by its extension, or None."""
    name = file.rpartition("/")[2]
    before, dot, ending = name.rpartition(".")
    return _ENDINGS.get(dot + ending.lower()) if before else None


def missing_parts() -> tuple[str, ...]:
    """Return the modules required for parsing that are not installed."""
    needed = dict.fromkeys(("tree_sitter", *(speech.module for speech in LANGUAGES.values())))
    return tuple(name for name in needed if importlib.util.find_spec(name) is None)
