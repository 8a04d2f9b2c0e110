import os
from types import TracebackType
from typing import Self, final

from typing_extensions import Buffer

__version__: str

class Error(Exception):
    kind: str

def connect(
    folder: str | os.PathLike[str],
    *,
    client: str | None = None,
    api: str | None = None,
    control: str | None = None,
    rack: str | None = None,
    scheme: str | None = None,
    timeout: float | None = None,
) -> Client: ...
@final
class Client:
    def open(self, name: str) -> Reader: ...
    def open_block(self, stripe: str, index: int) -> Reader: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

@final
class Reader:
    @property
    def size(self) -> int: ...
    def read(self, offset: int = 0, length: int | None = None) -> bytes: ...
    def readinto(self, offset: int, buffer: Buffer) -> int: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
