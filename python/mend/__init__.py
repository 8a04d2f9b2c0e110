"""Reads files and blocks of a Mend cluster, also those that are lost.

    import mend

    with mend.connect("mycluster") as client, client.open("film") as film:
        print(film.size)
        start = film.read(0, 4096)
"""

from mend._mend import Client, Error, Reader, __version__, connect

__all__ = ["Client", "Error", "Reader", "__version__", "connect"]
