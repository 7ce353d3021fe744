from __future__ import annotations

from pathlib import Path

import nbformat

from jupyter_ext.headless.notebook_kernel import notebook_kernel
from jupyter_ext.headless.server_process import jupyter_server


async def test_a_connection_that_is_left_with_unread_messages_is_closed(tmp_path: Path) -> None:
    """Tornado receives the next message only when one is read, so it would not see the server's reply."""
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / "left.ipynb")
    async with jupyter_server(tmp_path, tmp_path / "server.log") as server:
        async with notebook_kernel(server, "left.ipynb") as kernel:
            async for message in kernel.execute("for number in range(50):\n    print(number, flush=True)"):
                if message["msg_type"] == "stream":
                    break
            protocol = kernel._socket.protocol
        assert protocol is not None
        assert protocol.stream is not None
        assert protocol.stream.closed()
