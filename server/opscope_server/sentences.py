"""What the SDK would answer with a bare name of an error, or with the text of an exception, as a sentence."""

from __future__ import annotations

import logging
from typing import Any

from mcp import MCPError
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS
from pydantic import ValidationError

logger = logging.getLogger(__name__)


async def in_sentences(ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
    """Middleware around every message: params that do not fit are said to, a defect is logged and owned up to."""
    try:
        return await call_next(ctx)
    except MCPError:
        raise
    except ValidationError as error:
        raise MCPError(INVALID_PARAMS, _unfit(ctx.method, error)) from None
    except Exception as error:
        logger.exception("%s failed", ctx.method)
        raise MCPError(
            INTERNAL_ERROR,
            f"{ctx.method} stopped on a defect of opscope itself, not of your request; the server's log holds the details.",
        ) from error


def _unfit(method: str, error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    place = ".".join(str(part) for part in first["loc"])
    message = first["msg"].rstrip(".")
    return f"The params of {method} do not fit: {place + ': ' if place else ''}{message[:1].lower()}{message[1:]}."
