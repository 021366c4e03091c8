"""Stands between the functions of a Lakewarden and its embedded S3, and stops at a chosen request, so that the process can be killed
at exactly that moment."""

import re
import socket
import threading
import urllib.parse

REQUEST = re.compile(rb"(GET|PUT|POST|HEAD|DELETE) (\S+) HTTP/1\.1\r\n")
CHUNK = 1 << 16


def kind_of(method, target):
    """What a request is about, of those that a sweep sends."""
    path, _, query = target.partition("?")
    if method == "GET":
        return "list" if "list-type=2" in query else "get"
    if method == "POST" and "delete" in query:
        return "delete batch"
    if method == "PUT" and path.endswith(".jsonl"):
        return "put lines"
    if method == "PUT" and path.endswith("report.html"):
        return "put page"
    return method.lower()


class Gate:
    """Passes bytes on as they are. Who talks through it sends one request after the other on a connection."""

    def __init__(self, port):
        self.target = ("127.0.0.1", port)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.listener.getsockname()[1]}"
        self.lock = threading.Lock()
        self.seen = []
        self.moment, self.reached = None, threading.Event()
        threading.Thread(target=self._accept, daemon=True).start()

    def watch(self, moment=None):
        """From now on notes what passes. At a `moment`, (kind, which of them from 1, "before" or "after"), nothing more passes: the
        request has not reached the server, or its answer does not reach the function. At one that is "lost", only this
        answer is: its connection ends, and others go on."""
        with self.lock:
            self.seen, self.moment = [], moment
            self.reached.clear()

    def open(self):
        self.watch()

    def close(self):
        self.listener.close()

    def _accept(self):
        while True:
            try:
                near, _ = self.listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near):
        try:
            far = socket.create_connection(self.target)
        except OSError:
            near.close()
            return
        state = {"is_held": False, "is_lost": False}
        threading.Thread(target=self._answers, args=(far, near, state), daemon=True).start()
        while data := receive(near):
            verdict = self._note(data)
            if verdict == "before":
                self.reached.set()
                break
            state["is_held"] = state["is_held"] or verdict == "after"
            state["is_lost"] = state["is_lost"] or verdict == "lost"
            if not send(far, data):
                break
        end(far)

    def _answers(self, far, near, state):
        while data := receive(far):
            if state["is_held"]:
                # It was done, and nobody hears of it.
                self.reached.set()
                return
            if state["is_lost"]:
                end(far)
                break
            if not send(near, data):
                break
        end(near)

    def _note(self, data):
        """Whether the moment has come, and which side of it is wanted."""
        request = REQUEST.match(data)
        with self.lock:
            if self.reached.is_set():
                return "before"
            if not request:
                return None
            kind = kind_of(request[1].decode(), urllib.parse.unquote(request[2].decode()))
            self.seen.append(kind)
            if self.moment and self.moment[:2] == (kind, self.seen.count(kind)):
                return self.moment[2]
            return None


def receive(connection):
    try:
        return connection.recv(CHUNK)
    except OSError:
        return b""


def send(connection, data):
    try:
        connection.sendall(data)
        return True
    except OSError:
        return False


def end(connection):
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        pass
    connection.close()
