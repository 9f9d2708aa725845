"""A foreign peer, written from WIRE.md alone: a plain DEALER that lives a whole life against `node server`.

    node_life.py ENDPOINT

It greets, proves itself, answers, asks, falls silent until it is given up, comes back and says goodbye. It ends with
status 0 only if the server did its part in each step.
"""

import struct
import sys
import time

import zmq

HELLO, ADMIT, REJECT, UPDATE, PROBE, ACK = 1, 2, 3, 4, 5, 6
CHANNEL_SEND, CHANNEL_REQUEST, REPLY = 18, 19, 20
SERVING, STOPPED = 1, 4
CHANNEL = b"orders"


def head(command, body=b""):
    return b"ZM\x01" + bytes([command, 0]) + body


def text8(text):
    return bytes([len(text)]) + text


def admission(state, revision, pair):
    return (
        bytes([2, 1, 1, state])  # ClientServer, application lane, client
        + text8(CHANNEL)
        + text8(b"python")
        + struct.pack(">QQQ", 77, revision, pair)  # generation first
        + text8(b"")  # security identity
        + struct.pack(">HHI", 0, 0, 0)  # no endpoint, no completion endpoint, no limit
        + struct.pack(">HI", 0, 0)  # no channels, no extensions
    )


class Peer:
    def __init__(self, context, endpoint, pair):
        self.socket = context.socket(zmq.DEALER)
        self.socket.linger = 200
        self.socket.connect(endpoint)
        self.pair = pair

    def send(self, command, body=b"", parts=()):
        self.socket.send_multipart([head(command, body), *parts])

    def receive(self, seconds):
        """The next record as command, body and parts."""
        assert self.socket.poll(int(seconds * 1000)), f"nothing came in {seconds} s"
        frame, *parts = self.socket.recv_multipart()
        assert frame[:3] == b"ZM\x01" and frame[4] == 0, frame
        return frame[3], frame[5:], parts

    def expect(self, command, seconds=5):
        came, body, parts = self.receive(seconds)
        assert came == command, f"expected command {command}, got {came}: {body}"
        return body, parts

    def greet(self):
        """Hello and admit, then the probe that makes us ready, its ACK, and the server's own first probe."""
        self.send(HELLO, admission(SERVING, 1, self.pair))
        admit, _ = self.expect(ADMIT)
        assert admit[:4] == bytes([2, 1, 2, SERVING]), admit
        assert admit[4:].startswith(text8(CHANNEL) + text8(b"gateway")), admit
        self.send(PROBE, struct.pack(">Q", 5))
        asked = None
        answered = False
        while not (asked and answered):
            command, body, _ = self.receive(5)
            if command == ACK:
                assert body == struct.pack(">Q", 5), body
                answered = True
            else:
                assert command == PROBE, command
                (asked,) = struct.unpack(">Q", body)
                assert 0 < asked < 1 << 63
        return asked


def main(endpoint):
    context = zmq.Context()
    peer = Peer(context, endpoint, pair=1)

    first = peer.greet()
    peer.send(ACK, struct.pack(">Q", first))

    peer.send(CHANNEL_SEND, text8(CHANNEL), [b"a message"])
    peer.send(CHANNEL_REQUEST, struct.pack(">Q", 9) + text8(CHANNEL), [b"a", b"request"])
    body, parts = peer.expect(REPLY)
    assert body == struct.pack(">QB", 9, 0), body
    assert parts == [b"a", b"request"], parts
    peer.send(CHANNEL_REQUEST, struct.pack(">Q", 10) + text8(b"elsewhere"), [b"x"])
    body, parts = peer.expect(REPLY)
    assert (body, parts) == (struct.pack(">QB", 10, 1), []), (body, parts)  # NotFound

    # Silence: the same new id again and again, every 5 s, while our messages count for nothing; then the verdict.
    ids, times = [], []
    while True:
        command, body, _ = peer.receive(8)
        if command == REJECT:
            assert body == struct.pack(">I", 14), body
            break
        assert command == PROBE, command
        ids.append(struct.unpack(">Q", body)[0])
        times.append(time.monotonic())
        peer.send(CHANNEL_SEND, text8(CHANNEL), [b"still talking"])
    assert len(ids) == 3 and len(set(ids)) == 1 and ids[0] != first, ids
    assert all(4.5 < later - earlier < 6 for earlier, later in zip(times, times[1:])), times

    # Given up: an ACK that comes now changes nothing, and is refused like all else, at most once a second.
    time.sleep(1.1)
    peer.send(ACK, struct.pack(">Q", ids[0]))
    body, _ = peer.expect(REJECT)
    assert body == struct.pack(">I", 14), body
    peer.socket.close()

    # Return: a new connection shakes hands anew.
    peer = Peer(context, endpoint, pair=2)
    second = peer.greet()
    assert second not in (first, ids[0])
    peer.send(ACK, struct.pack(">Q", second))
    peer.send(CHANNEL_REQUEST, struct.pack(">Q", 9) + text8(CHANNEL), [b"back"])
    body, parts = peer.expect(REPLY)
    assert (body, parts) == (struct.pack(">QB", 9, 0), [b"back"]), (body, parts)

    # Goodbye.
    peer.send(UPDATE, admission(STOPPED, 2, peer.pair))
    peer.socket.close()
    context.term()


if __name__ == "__main__":
    main(sys.argv[1])
