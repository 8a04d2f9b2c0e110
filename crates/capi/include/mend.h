/*
 * mend.h - reads files and blocks of a Mend cluster, also those that are lost.
 *
 * The library is a requestor of Mend's protocol: the coordinator plans a read, and the helpers send the
 * bytes, or partial sums of them, straight to this process. docs/reference/requestors.md describes how to
 * build, link and use it; examples/read_range.c is a complete program.
 *
 * Strings are UTF-8 and end with a NUL byte. Sizes and offsets are in bytes.
 *
 * Errors. A function that can fail returns a mend_status: MEND_OK (0), or the class of the error. If its
 * last argument is not NULL, the function also stores the status and a message there (MEND_OK and "" on
 * success). A function that returns a handle stores NULL instead if it fails.
 *
 * Threads. Any thread may use any handle. Several threads may use the same handle at the same time, except
 * that mend_disconnect and mend_close must be the last call with their handle. Each mend_client has one
 * thread of its own, which handles no signals of the program, and raises no SIGPIPE. No function may be
 * called from a signal handler.
 *
 * Processes. In a child process that was forked after mend_connect, calls with the parent's handles fail
 * with MEND_INVALID. The child can connect on its own.
 */
#ifndef MEND_H
#define MEND_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A connection to a cluster. */
typedef struct mend_client mend_client;

/* A file or block that is open for reading. */
typedef struct mend_reader mend_reader;

typedef enum mend_status {
    MEND_OK = 0,
    MEND_INVALID = 1,        /* an argument is invalid, or the process was forked after mend_connect */
    MEND_SETUP = 2,          /* the cluster folder or a certificate in it cannot be used */
    MEND_UNREACHABLE = 3,    /* the coordinator does not answer; a retry may succeed later */
    MEND_UNTRUSTED = 4,      /* the peer is not this cluster's coordinator, or rejects our certificate */
    MEND_NOT_FOUND = 5,      /* there is no such file, stripe or block */
    MEND_REFUSED = 6,        /* the coordinator refuses the request */
    MEND_OUT_OF_RANGE = 7,   /* the range ends past the end of the file or block */
    MEND_TOO_MUCH_LOST = 8,  /* more blocks are lost than the code tolerates */
    MEND_CORRUPT = 9,        /* blocks arrived with wrong bytes, or contradict each other */
    MEND_REPLACED = 10,      /* the file or block was replaced; the opened version is no longer available */
    MEND_FAILED = 11,        /* the read failed after it started; a retry may succeed */
    MEND_TIMED_OUT = 12,     /* the call took longer than timeout_ms */
    MEND_PROTOCOL = 13,      /* the coordinator violates the protocol; it may have another version */
    MEND_INTERNAL = 14       /* a defect of the library */
} mend_status;

/* The size of mend_error.message. Longer messages are cut at the end of a character. */
#define MEND_MESSAGE_BYTES 1020

typedef struct mend_error {
    mend_status status;
    char message[MEND_MESSAGE_BYTES]; /* what failed and, where possible, what to do next; ends with NUL */
} mend_error;

/* Options of mend_connect. All zeros are the defaults: mend_options options = {0}; */
typedef struct mend_options {
    const char *client;  /* the client whose certificate to present; NULL: "admin", as `mend init` creates */
    const char *api;     /* HOST:PORT of the coordinator's API; NULL: as in mend.toml */
    const char *control; /* HOST:PORT of the coordinator's control port; NULL: as in mend.toml */
    const char *rack;    /* this machine's rack, as named in mend.toml; NULL: outside all racks */
    const char *scheme;  /* the scheme for decoding lost blocks, such as "cyclic"; NULL: "auto" */
    uint64_t timeout_ms; /* the time limit of each call; 0: none */
} mend_options;

/* The version of the library, such as "0.1.0". */
const char *mend_version(void);

/* The name of a status, such as "TOO_MUCH_LOST". */
const char *mend_status_name(mend_status status);

/*
 * Connects to the cluster of a cluster folder, whose path need not be UTF-8. The folder needs mend.toml,
 * ca/ca.pem, and cert.pem and key.pem of the client: in client/ for "admin", and in clients/NAME/ for the
 * client NAME. options may be NULL.
 */
mend_status mend_connect(const char *folder, const mend_options *options, mend_client **client,
                         mend_error *error);

/*
 * Releases a client. Its readers stay usable; the connection is closed together with the last of them. NULL
 * is ignored.
 */
void mend_disconnect(mend_client *client);

/* Opens the current version of a file. All reads return bytes of this version, even after a replacement. */
mend_status mend_open_file(mend_client *client, const char *name, mend_reader **reader, mend_error *error);

/* Opens a block of a stripe by its index, from 0. If the block is lost, it is decoded from other blocks. */
mend_status mend_open_block(mend_client *client, const char *stripe, uint32_t index, mend_reader **reader,
                            mend_error *error);

/* The size of the file or block; 0 for NULL. */
uint64_t mend_size(const mend_reader *reader);

/*
 * Fills buffer with exactly `bytes` bytes from `offset` on, decoding lost blocks on the way. If the call
 * fails, the content of the buffer is unspecified. A call has at most 64 MiB in memory in addition to the
 * buffer.
 */
mend_status mend_read(mend_reader *reader, uint64_t offset, void *buffer, size_t bytes, mend_error *error);

/* Releases a reader. NULL is ignored. */
void mend_close(mend_reader *reader);

#ifdef __cplusplus
}
#endif

#endif
