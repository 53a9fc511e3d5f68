"""Subclasses of a class whose own forward differs from it, with the line where each is defined.

python clients/examples/who_overrides_forward.py [CLASS]
"""

import asyncio
import sys

from opscope_clients import AsyncSession, CallError
from opscope_tools.find_forward import FIND_FORWARD
from opscope_tools.resolve_class.tool import RESOLVE_CLASS


async def main(name: str = "torch.nn.Linear") -> None:
    async with AsyncSession() as opscope:
        (found,) = (await opscope.call(RESOLVE_CLASS, name=name)).matches
        for subclass in found.subclasses:
            try:
                forward = await opscope.call(FIND_FORWARD, target=subclass)
            except CallError as refused:
                print(f"{subclass}: {refused}")
                continue
            if not forward.inherited:
                print(f"{forward.file}:{forward.line}  {forward.class_name}")


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
