"""Writing HTML: everything that comes from outside goes through here, so that it is text and never markup."""

from __future__ import annotations

import html
from collections.abc import Iterable


class Markup(str):
    """Text that is HTML already."""

    __slots__ = ()


Content = str | Markup | Iterable["Content"] | None

_VOID = ("br", "img", "input", "meta")
"""Without an end."""


def element(tag: str, *content: Content, **attributes: object) -> Markup:
    """``<tag ...>content</tag>``.

    Plain strings are escaped; None is left out. Attributes: a trailing underscore is dropped and others become dashes
    (``class_``, ``aria_label``); True is an attribute without value, None and False none.
    """
    written = "".join(_attribute(name, value) for name, value in attributes.items())
    if tag in _VOID:
        return Markup(f"<{tag}{written}>")
    return Markup(f"<{tag}{written}>{join(content)}</{tag}>")


def join(content: Content) -> Markup:
    """All of it, one after the other."""
    if content is None:
        return Markup("")
    if isinstance(content, Markup):
        return content
    if isinstance(content, str):
        return Markup(html.escape(content))
    return Markup("".join(join(part) for part in content))


def _attribute(name: str, value: object) -> str:
    if value is None or value is False:
        return ""
    name = name.rstrip("_").replace("_", "-")
    # SVG's attributes have capitals within, and HTML ignores them.
    name = "viewBox" if name == "viewbox" else name
    return f" {name}" if value is True else f' {name}="{html.escape(str(value))}"'
