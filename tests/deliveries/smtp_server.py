"""An SMTP server on loopback that answers as it is told."""

from __future__ import annotations

import socket
import threading


class SmtpServer:
    """Serves connections one after the other; `answers` replaces the answers to commands, once each."""

    def __init__(self, answers=(), extensions=()):
        self.answers = list(answers)
        self.extensions = extensions
        self.messages = []
        self.commands = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(20)
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        # A last connection that says nothing ends the serving.
        with socket.create_connection(("127.0.0.1", self.port), timeout=20) as bye:
            bye.sendall(b"STOP\r\n")
        self._thread.join(20)
        self._listener.close()
        assert not self._thread.is_alive()

    def _serve(self):
        running = True
        while running:
            connection, _ = self._listener.accept()
            connection.settimeout(20)
            with connection, connection.makefile("rwb") as stream:
                running = self._talk(stream)

    def _talk(self, stream):
        self._say(stream, "220 here")
        while line := stream.readline():
            command = line.decode().strip()
            word = command.split(" ")[0].split(":")[0].upper()
            if word == "STOP":
                return False
            self.commands.append(command)
            answer = self._answer(word)
            if answer == "hang up":
                return True
            self._say(stream, answer)
            if word == "DATA" and answer.startswith("354"):
                self.messages.append(self._message(stream))
                self._say(stream, self._answer("END"))
            if word == "QUIT":
                return True
        return True

    def _answer(self, word):
        for place, (which, answer) in enumerate(self.answers):
            if which == word:
                del self.answers[place]
                return answer
        if word == "EHLO":
            return "\r\n".join(["250-here", *(f"250-{extension}" for extension in self.extensions), "250 ok"])
        return {"DATA": "354 go", "AUTH": "235 welcome", "QUIT": "221 bye"}.get(word, "250 ok")

    def _message(self, stream):
        lines = []
        while (line := stream.readline()) != b".\r\n":
            lines.append(line.removeprefix(b".") if line.startswith(b"..") else line)
        return b"".join(lines)

    def _say(self, stream, answer):
        stream.write(answer.encode() + b"\r\n")
        stream.flush()
