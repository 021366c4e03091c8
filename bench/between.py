"""Stands before a server and makes it look far away: what the server answers arrives later by a fixed time. It also counts the
requests and their bytes.

    python between.py HOST:PORT DELAY_MS        prints its own address; for each line on stdin prints what it has counted

It knows nothing of HTTP but where requests and answers begin: clients here send one request after the other on a connection.
A model: the time does not depend on size or load, and connecting takes none.
"""

import asyncio
import collections
import json
import re
import sys

REQUEST = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) (\S*)")
ANSWER = re.compile(rb"HTTP/1\.1 (\d\d\d)")
CHUNK = 1 << 16


class Between:
    def __init__(self, target, delay_ms):
        self.host, port = target.split(":")
        self.port = int(port)
        self.delay = delay_ms / 1000
        self.counts = collections.Counter()

    async def connect(self, reader, writer):
        try:
            far_reader, far_writer = await asyncio.open_connection(self.host, self.port)
        except OSError:
            writer.close()
            return
        late = asyncio.Queue()
        tasks = [self.forth(reader, far_writer), self.back(far_reader, late), self.deliver(late, writer)]
        await asyncio.gather(*tasks, return_exceptions=True)
        for end in (writer, far_writer):
            end.close()

    async def forth(self, reader, writer):
        while data := await reader.read(CHUNK):
            if request := REQUEST.match(data):
                self.counts[request[1].decode()] += 1
                # Listings are GETs on the wire, and not in anybody's bill.
                self.counts["lists"] += b"list-type=2" in request[2]
            self.counts["bytes sent"] += len(data)
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def back(self, reader, late):
        loop = asyncio.get_running_loop()
        while data := await reader.read(CHUNK):
            if answer := ANSWER.match(data):
                self.counts[answer[1].decode()] += 1
            self.counts["bytes received"] += len(data)
            late.put_nowait((loop.time() + self.delay, data))
        late.put_nowait((0, b""))

    async def deliver(self, late, writer):
        loop = asyncio.get_running_loop()
        while True:
            due, data = await late.get()
            if not data:
                break
            if (pause := due - loop.time()) > 0:
                await asyncio.sleep(pause)
            writer.write(data)
            await writer.drain()
        writer.write_eof()


async def main():
    between = Between(sys.argv[1], float(sys.argv[2]))
    server = await asyncio.start_server(between.connect, "127.0.0.1", 0, backlog=256)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    while await lines.readline():
        print(json.dumps(between.counts), flush=True)


asyncio.run(main())
