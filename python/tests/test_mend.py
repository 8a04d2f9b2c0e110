"""Tests of the library with a real cluster, which crates/cli/tests/faults/python.rs starts and breaks.

Each class needs the state of the cluster that its docstring names.
"""

import array
import os
import pathlib
import signal
import threading
import unittest
import warnings

import mend

FOLDER = pathlib.Path(os.environ["MEND_TEST_CLUSTER"])
STRIPE = os.environ["MEND_TEST_STRIPE"]
CONTENT = pathlib.Path(os.environ["MEND_TEST_CONTENT"]).read_bytes()


class Case(unittest.TestCase):
    def fails(self, kind, call, *arguments, **options):
        """Asserts that a call raises mend.Error of this kind; returns its message."""
        with self.assertRaises(mend.Error) as raised:
            call(*arguments, **options)
        self.assertEqual(raised.exception.kind, kind, raised.exception)
        return str(raised.exception)


class Degraded(Case):
    """Blocks 1, 3 and 5 of the file's only stripe, of rs-7-4, are lost."""

    def setUp(self):
        self.client = self.enterContext(mend.connect(FOLDER, scheme="cyclic", timeout=60))
        self.film = self.enterContext(self.client.open("film"))

    def test_bytes(self):
        self.assertEqual(self.film.size, len(CONTENT))
        self.assertEqual(self.film.read(), CONTENT)
        self.assertEqual(self.film.read(1_234_567), CONTENT[1_234_567:])
        self.assertEqual(self.film.read(1_234_567, 2_000_000), CONTENT[1_234_567:3_234_567])
        self.assertEqual(self.film.read(offset=7, length=0), b"")
        self.assertEqual(self.film.read(len(CONTENT)), b"")

    def test_buffers(self):
        target = bytearray(b"x" * 70_000)
        self.assertEqual(self.film.readinto(1_000_000, memoryview(target)[1:-1]), 69_998)
        self.assertEqual(target, b"x" + CONTENT[1_000_000:1_069_998] + b"x")
        numbers = array.array("d", bytes(80_000))
        self.assertEqual(self.film.readinto(2_000_000, numbers), 80_000)
        self.assertEqual(numbers.tobytes(), CONTENT[2_000_000:2_080_000])
        whole = bytearray(len(CONTENT))
        self.film.readinto(0, whole)
        self.assertEqual(whole, CONTENT)
        self.assertEqual(self.film.readinto(0, bytearray()), 0)
        with self.assertRaisesRegex(TypeError, "read-only"):
            self.film.readinto(0, b"constant")
        with self.assertRaises(TypeError):
            self.film.readinto(0, "text")
        with self.assertRaises(TypeError):  # Not contiguous.
            self.film.readinto(0, memoryview(bytearray(8))[::2])

    def test_blocks(self):
        with self.client.open_block(STRIPE, 1) as block:
            data = CONTENT[block.size : 2 * block.size]
            self.assertEqual(block.read(), data)
            self.assertEqual(block.read(block.size - 5, 5), data[-5:])
            self.fails("OUT_OF_RANGE", block.read, block.size, 1)
        self.assertIn("has no block 7", self.fails("NOT_FOUND", self.client.open_block, STRIPE, 7))

    def test_errors(self):
        self.assertIn("no such film", self.fails("NOT_FOUND", self.client.open, "no such film"))
        # The range is checked before memory is allocated.
        self.assertIn(str(len(CONTENT)), self.fails("OUT_OF_RANGE", self.film.read, 0, 1 << 60))
        self.fails("OUT_OF_RANGE", self.film.read, len(CONTENT) + 1)
        self.fails("OUT_OF_RANGE", self.film.readinto, len(CONTENT) - 7, bytearray(8))
        with self.assertRaises(OverflowError):
            self.film.read(-1)
        for options in ({"scheme": "fastest"}, {"client": "no body"}, {"api": "nowhere"}, {"timeout": -1.0}):
            with self.assertRaisesRegex(ValueError, next(iter(options))):
                mend.connect(FOLDER, **options)
        self.assertIn("mend init", self.fails("SETUP", mend.connect, "/no/such/folder"))
        self.assertIn("clients/bob", self.fails("SETUP", mend.connect, FOLDER, client="bob"))
        self.fails("UNREACHABLE", mend.connect, FOLDER, control="127.0.0.1:1")

    def test_closing(self):
        with mend.connect(str(FOLDER)) as client:
            film = client.open("film")
        with self.assertRaisesRegex(ValueError, "closed"):
            client.open("film")
        self.assertEqual(film.read(9, 9), CONTENT[9:18])  # A reader outlives its client.
        film.close()
        film.close()
        with self.assertRaisesRegex(ValueError, "closed"):
            film.read(9, 9)

    def test_threads(self):
        wrong = []

        def read(number):
            for offset in range(number, len(CONTENT), 1_000_003):
                expected = CONTENT[offset : offset + 50_000]
                if self.film.read(offset, len(expected)) != expected:
                    wrong.append(offset)

        threads = [threading.Thread(target=read, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_fork(self):
        with warnings.catch_warnings():  # Newer versions of Python warn of forks with threads.
            warnings.simplefilter("ignore")
            child = os.fork()
        if child == 0:
            try:
                self.film.read(0, 1)
            except ValueError as error:
                with mend.connect(FOLDER) as client, client.open("film") as film:
                    os._exit(0 if "forked" in str(error) and film.read(0, 9) == CONTENT[:9] else 1)
            finally:
                os._exit(1)
        self.assertEqual(os.waitpid(child, 0)[1], 0)


class TooMuchLost(Case):
    """Block 0 is lost as well."""

    def test_error(self):
        with mend.connect(FOLDER) as client, client.open("film") as film:
            self.assertIn("film", self.fails("TOO_MUCH_LOST", film.read, 0, 1))


class Silent(Case):
    """The coordinator is stopped, so calls wait."""

    def test_timeout(self):
        self.fails("TIMED_OUT", mend.connect, FOLDER, timeout=0.3)

    def test_interrupt(self):
        # A shell starts programs in the background with this signal ignored.
        signal.signal(signal.SIGINT, signal.default_int_handler)
        # The other thread can only run if the waiting call has released the GIL.
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        with self.assertRaises(KeyboardInterrupt):
            mend.connect(FOLDER)


class Down(Case):
    """The coordinator is down."""

    def test_error(self):
        self.assertIn("mend coordinator", self.fails("UNREACHABLE", mend.connect, FOLDER))
