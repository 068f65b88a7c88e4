#!/usr/bin/python3
"""A client that answers surveys as a test wants. `survey_client.py SOCKET UUID FILE` subscribes to questions on the server at
that Unix socket, and prints "ready". It answers each question with the present content of the file."""
import socket
import sys


def send(connection, *words):
    parts = [b"*%d\r\n" % len(words)]
    for word in words:
        parts.append(b"$%d\r\n%s\r\n" % (len(word), word))
    connection.sendall(b"".join(parts))


def read(stream):
    """One reply: bytes, a number or a list."""
    line = stream.readline()
    if not line:
        sys.exit(0)
    kind, rest = line[:1], line[1:-2]
    if kind == b"$":
        text = stream.read(int(rest) + 2)
        return text[:-2]
    if kind == b"*":
        return [read(stream) for _ in range(int(rest))]
    return int(rest) if kind == b":" else rest


def connect():
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    return connection, connection.makefile("rb")


path, uuid, text = sys.argv[1], sys.argv[2].encode(), sys.argv[3]
subscriber, messages = connect()
publisher, replies = connect()
# A survey waits for an answer, because of this name and this channel.
send(subscriber, b"CLIENT", b"SETNAME", b"holdfast:" + uuid + b":host:1:worker")
read(messages)
for channel in (b"holdfast_ask", b"holdfast_tell:0:" + uuid):
    send(subscriber, b"SUBSCRIBE", channel)
    read(messages)
print("ready", flush=True)
while True:
    words = read(messages)[2].split(b" ")
    if words[:2] == [b"ask", b"1"]:
        with open(text, "rb") as file:
            send(publisher, b"PUBLISH", b"holdfast_tell:" + words[2], file.read())
        read(replies)
