"""A whole life with a wakeful server, told from the outside with pyzmq and WIRE.md alone.

Arguments: the server's endpoint and the channel. It says each step on standard output when it has come that far, and
waits for a line on standard input where virtual time has to pass first.
"""

import struct
import sys

import zmq

ENDPOINT, CHANNEL = sys.argv[1], sys.argv[2].encode()
HELLO, ADMIT, REJECT, UPDATE, PROBE, ACK, SEND, REQUEST, REPLY = 1, 2, 3, 4, 5, 6, 18, 19, 20


def head(command, body=b""):
    return b"ZM\x01" + bytes([command, 0]) + body


def text8(text):
    return bytes([len(text)]) + text


def hello(rid, generation):
    return head(
        HELLO,
        bytes([2, 1, 1, 1]) + text8(CHANNEL) + text8(rid)
        + struct.pack(">QQQ", generation, 1, 4711)
        + text8(b"") + struct.pack(">HHIHI", 0, 0, 0, 0, 0),
    )


def dial(context):
    socket = context.socket(zmq.DEALER)
    socket.linger = 0
    socket.rcvtimeo = 10_000
    socket.connect(ENDPOINT)
    return socket


def expect(socket, command):
    """The next record with this command; probes in between are passed over."""
    while True:
        frames = socket.recv_multipart()
        magic, major, got, flags = frames[0][:2], frames[0][2], frames[0][3], frames[0][4]
        assert (magic, major, flags) == (b"ZM", 1, 0), frames
        if got == command:
            return frames[0][5:], frames[1:]
        assert got == PROBE, (got, frames)


def step(word):
    print(word, flush=True)


def admitted(socket, rid, generation):
    socket.send(hello(rid, generation))
    body, parts = expect(socket, ADMIT)
    assert parts == [] and body[:4] == bytes([2, 1, 2, 1]), body
    assert body[4:].startswith(text8(CHANNEL) + text8(b"server")), body
    # The first probe makes the server see a ready peer, and it asks in its turn.
    socket.send(head(PROBE, struct.pack(">Q", 0x0102030405060708)))
    asked = None
    while True:
        frames = socket.recv_multipart()
        if frames[0] == bytes.fromhex("5A4D0106000102030405060708"):
            break
        assert frames[0][3] == PROBE, frames
        asked = frames[0][5:]
    asked = asked or expect(socket, PROBE)[0]
    assert 0 < struct.unpack(">Q", asked)[0] < 1 << 63
    return asked


def main():
    context = zmq.Context()
    socket = dial(context)
    asked = admitted(socket, b"snake", 1)
    socket.send(head(ACK, asked))
    step("ready")

    socket.send_multipart([head(SEND, text8(CHANNEL)), b"one", b"", b"three"])
    socket.send_multipart([head(REQUEST, struct.pack(">Q", 77) + text8(CHANNEL)), b"how", b"are you"])
    body, parts = expect(socket, REPLY)
    assert body == struct.pack(">QB", 77, 0) and parts == [b"how", b"are you"], (body, parts)
    step("replied")

    # Silent from here on; the host lets 17 s pass.
    sys.stdin.readline()
    body, parts = expect(socket, REJECT)
    assert body == struct.pack(">I", 14) and parts == [], body
    step("judged")

    # What it still says is not heard, and answered at most once a second.
    for _ in range(5):
        socket.send_multipart([head(SEND, text8(CHANNEL)), b"too late"])
    step("spoke on")
    sys.stdin.readline()
    socket.close()

    socket = dial(context)
    socket.send(head(ACK, asked))
    assert expect(socket, REJECT)[0] == struct.pack(">I", 14)
    socket.close()

    socket = dial(context)
    socket.send(head(ACK, admitted(socket, b"snake", 2)))
    socket.send_multipart([head(SEND, text8(CHANNEL)), b"back again"])
    step("returned")
    sys.stdin.readline()
    socket.close()
    context.term()


main()
