"""Recipes: which formats and smoothing a call uses. One table, and it lives in the library."""

from __future__ import annotations

import functools
import sys
from ctypes import byref, c_char_p, c_void_p

from ._library import check, library

DEFAULT = "vc8"


class Recipe:
    """A named recipe, with fields changed: ``Recipe("vc8", hadamard=False, p_top=120)``.

    Equivalent text, accepted wherever a recipe is: ``"vc8:hadamard=off,p_top=120"``.

    Raises:
        InvalidArgumentError: for an unknown name or field, or a value outside its range; the
            message lists what is supported.
    """

    def __init__(self, name: str = DEFAULT, **fields: object) -> None:
        self.spec = (
            name
            + (":" if fields else "")
            + ",".join(f"{field}={_text(value)}" for field, value in fields.items())
        )
        torch = sys.modules.get("torch")
        if torch is None or not torch.compiler.is_compiling():  # the operator checks it as well
            handle(self.spec)

    @property
    def fields(self) -> dict[str, str]:
        """Every field and its value as text, in declaration order."""
        values: dict[str, str] = {}
        field, value = c_char_p(), c_char_p()
        recipe = handle(self.spec)
        while library().vcattn_recipe_field(recipe, len(values), byref(field), byref(value)) == 0:
            values[(field.value or b"").decode()] = (value.value or b"").decode()
        return values

    def __str__(self) -> str:
        return self.spec

    def __repr__(self) -> str:
        return f"Recipe({self.spec!r})"


def _text(value: object) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)


def spec_of(recipe: str | Recipe | None) -> str:
    """The recipe as text; "" for none."""
    return recipe.spec if isinstance(recipe, Recipe) else recipe or ""


@functools.lru_cache(maxsize=256)
def handle(spec: str) -> c_void_p:
    """The library's object for a recipe text. Kept while cached; a handful exist in a process."""
    name, _, changes = spec.partition(":")
    recipe = c_void_p()
    check(library().vcattn_recipe_create(name.encode(), byref(recipe)))
    for change in filter(None, changes.split(",")):
        field, _, value = change.partition("=")
        status = library().vcattn_recipe_set(recipe, field.strip().encode(), value.strip().encode())
        if status != 0:
            library().vcattn_recipe_destroy(recipe)
            check(status)
    return recipe


def recipes() -> dict[str, str]:
    """Name -> one line on what the recipe is and where it was published."""
    found: dict[str, str] = {}
    while (name := library().vcattn_recipe_name(len(found))) is not None:
        found[name.decode()] = library().vcattn_recipe_summary(len(found)).decode()
    return found
