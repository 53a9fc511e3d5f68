"""Collects conformance fixtures as they are defined, so that they can be added to a server that exists later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from mcp.server import MCPServer

F = TypeVar("F", bound=Callable[..., Any])
#: what is to be registered, in order
ITEMS: list[Callable[[MCPServer[Any]], object]] = []


def tool(name: str | None = None) -> Callable[[F], F]:
    """Register the function as a tool."""
    return _later(lambda server: server.tool(name))


def resource(uri: str) -> Callable[[F], F]:
    """Register the function as a resource, or a template where the URI has variables."""
    return _later(lambda server: server.resource(uri))


def prompt() -> Callable[[F], F]:
    """Register the function as a prompt."""
    return _later(lambda server: server.prompt())


def _later(decorator: Callable[[MCPServer[Any]], Callable[..., object]]) -> Callable[[F], F]:
    def keep(function: F) -> F:
        ITEMS.append(lambda server: decorator(server)(function))
        return function

    return keep
