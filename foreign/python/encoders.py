"""liberasurecode's (by pyeclib) and zfec's encoders behind the protocol of foreign/README.md."""

import sys

import pyeclib.ec_iface
import zfec

HEADER_BYTES = 80


def swift(ec_type, data, m):
    """A fragment is a header and the block; the header says nothing that the coding depends on."""
    k, size = len(data), len(data[0])
    driver = pyeclib.ec_iface.ECDriver(k=k, m=m, ec_type=ec_type)
    blocks = [fragment[HEADER_BYTES:] for fragment in driver.encode(b"".join(data))]
    if blocks[:k] != data:
        raise ValueError(f"fragments of {len(blocks[0])} bytes where blocks of {size} were given")
    return blocks[k:]


def encode(name, data, m):
    if name == "zfec":
        return zfec.Encoder(len(data), len(data) + m).encode(data)[len(data):]
    if name.startswith("swift-"):
        return swift(name.removeprefix("swift-"), data, m)
    raise ValueError(f"no encoder {name}")


def main():
    stdin, stdout = sys.stdin.buffer, sys.stdout.buffer
    while line := stdin.readline():
        name, k, m, size = line.decode().split()
        data = [stdin.read(int(size)) for _ in range(int(k))]
        try:
            parity = encode(name, data, int(m))
            stdout.write(b"ok\n" + b"".join(parity))
        except Exception as error:
            stdout.write(b"error " + repr(error).replace("\n", " ").encode() + b"\n")
        stdout.flush()


main()
