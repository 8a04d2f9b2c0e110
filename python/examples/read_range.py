#!/usr/bin/env python3
"""Reads a range of a file of a Mend cluster, or of a block, and writes it to standard output.

Lost blocks are decoded on the way.

    python read_range.py mycluster film 1000000 4096 | xxd
    python read_range.py --block 3 mycluster 1-k3f9x2 0 4096 | xxd      (block 3 of stripe 1-k3f9x2)
"""

import argparse
import sys

import mend

PIECE_BYTES = 16 << 20  # The bytes of one call, which bound the memory of this program.


def main():
    parser = argparse.ArgumentParser(description="Read a range of a file or block of a Mend cluster.")
    parser.add_argument("--block", type=int, metavar="INDEX", help="NAME is a stripe; read this block of it")
    parser.add_argument("--client", help="the client whose certificate to present")
    parser.add_argument("--timeout", type=float, metavar="SECONDS", help="the time limit of each call")
    parser.add_argument("folder")
    parser.add_argument("name")
    parser.add_argument("offset", type=int)
    parser.add_argument("bytes", type=int)
    arguments = parser.parse_args()
    with mend.connect(arguments.folder, client=arguments.client, timeout=arguments.timeout) as client:
        if arguments.block is None:
            reader = client.open(arguments.name)
        else:
            reader = client.open_block(arguments.name, arguments.block)
        buffer = memoryview(bytearray(min(PIECE_BYTES, arguments.bytes)))
        with reader:
            for offset in range(arguments.offset, arguments.offset + arguments.bytes, PIECE_BYTES):
                piece = buffer[: arguments.offset + arguments.bytes - offset]
                reader.readinto(offset, piece)
                sys.stdout.buffer.write(piece)


if __name__ == "__main__":
    try:
        main()
    except mend.Error as error:
        sys.exit(f"read_range: {error.kind}: {error}")
